// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package v1beta2_test

import (
	"encoding/json"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/randfill"

	infrav1 "github.com/muster-io/muster/apis/infrastructure/v1beta1"
	"github.com/muster-io/muster/apis/infrastructure/v1beta2"
)

// filler makes objects of random bytes, with what the API server would let in.
func filler(data []byte) *randfill.Filler {
	return randfill.NewFromGoFuzz(data).NilChance(.3).NumElements(0, 3).MaxDepth(12).Funcs(
		func(j *apiextensionsv1.JSON, c randfill.Continue) {
			j.Raw = []byte(`{"deep":[` + strconv.Itoa(c.Intn(1000)) + `]}`)
			if c.Bool() {
				j.Raw = []byte(strconv.Quote("v" + strconv.Itoa(c.Intn(1000))))
			}
		},
		func(t *metav1.Time, c randfill.Continue) { *t = metav1.Unix(int64(c.Intn(1<<30)), 0) },
		func(m *metav1.ObjectMeta, c randfill.Continue) {
			m.Name, m.Namespace = "t"+strconv.Itoa(c.Intn(100)), "metal"
			if c.Bool() {
				m.Annotations = map[string]string{"note": strconv.Itoa(c.Intn(100))}
			}
		},
		func(*metav1.TypeMeta, randfill.Continue) {},
		func(s *string, c randfill.Continue) { *s = "s" + strconv.Itoa(c.Intn(1000)) },
		func(parameters *[]v1beta2.BondParameter, c randfill.Continue) { // names are unique, and in an order that says nothing
			for i := range c.Intn(4) {
				p := v1beta2.BondParameter{Name: "p" + strconv.Itoa(i), Value: new(apiextensionsv1.JSON)}
				c.Fill(p.Value)
				*parameters = append(*parameters, p)
			}
		},
		func(entries *[]v1beta2.IndexEntry, c randfill.Continue) {
			for i := range c.Intn(4) {
				*entries = append(*entries, v1beta2.IndexEntry{Name: "c" + strconv.Itoa(i), Index: int32(c.Intn(100))})
			}
		},
		func(i *int, c randfill.Continue) { *i = c.Intn(1 << 31) },
		func(n *infrav1.NetworkSource, c randfill.Continue) {
			n.IPAddressFromIPPool = "s" + strconv.Itoa(c.Intn(10))
			if c.Bool() {
				n.FromPoolRef = &infrav1.PoolReference{Name: "ref"}
			}
		},
	)
}

func assertSameWire(t *testing.T, want, got any) {
	t.Helper()
	expected, err := json.Marshal(want)
	require.NoError(t, err)
	actual, err := json.Marshal(got)
	require.NoError(t, err)
	assert.JSONEq(t, string(expected), string(actual))
}

// FuzzConversion sends templates of either version to the other one and back: nothing is lost.
func FuzzConversion(f *testing.F) {
	for seed := range 32 {
		data := make([]byte, 4096)
		for i := range data {
			data[i] = byte(i*i*(seed+3) + i*(seed+7) + seed)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		fill := filler(data)
		stored := &infrav1.Metal3DataTemplate{}
		fill.Fill(stored)
		if stored.Spec.NetworkData != nil { // the other spelling is of v1beta1 only
			for i := range stored.Spec.NetworkData.Networks.IPv4 {
				source := &stored.Spec.NetworkData.Networks.IPv4[i].NetworkSource
				source.IPAddressfromIPPool, source.IPAddressFromIPPool = source.IPAddressFromIPPool, ""
			}
		}
		served, back := &v1beta2.Metal3DataTemplate{}, &infrav1.Metal3DataTemplate{}
		require.NoError(t, served.ConvertFrom(stored.DeepCopy()))
		require.NoError(t, served.DeepCopy().ConvertTo(back))
		assertSameWire(t, stored, back)

		written := &v1beta2.Metal3DataTemplate{}
		fill.Fill(written)
		again := &v1beta2.Metal3DataTemplate{}
		back = &infrav1.Metal3DataTemplate{}
		require.NoError(t, written.DeepCopy().ConvertTo(back))
		require.NoError(t, again.ConvertFrom(back))
		assertSameWire(t, written, again)
		assert.NotContains(t, again.Annotations, v1beta2.StoredSpecAnnotation)
	})
}

func TestConversion(t *testing.T) {
	stored := &infrav1.Metal3DataTemplate{
		ObjectMeta: metav1.ObjectMeta{Name: "workers"},
		Spec: infrav1.Metal3DataTemplateSpec{
			TemplateReference: "old",
			MetaData: &infrav1.MetaData{
				IPAddressesFromIPPool: []infrav1.MetaDataFromPool{{Key: "a", Name: "lan"}},
				IPAddressesFromPool:   []infrav1.MetaDataFromPool{{Key: "b", Name: "lan"}},
			},
			NetworkData: &infrav1.NetworkData{Links: infrav1.NetworkLinks{Bonds: []infrav1.Bond{{
				ID: "b", Parameters: map[string]apiextensionsv1.JSON{"miimon": {Raw: []byte("100")}, "lacp_rate": {Raw: []byte(`"fast"`)}},
			}}}},
		},
		Status: infrav1.Metal3DataTemplateStatus{Indexes: map[string]int{"b": 0, "a": 1}},
	}
	served := &v1beta2.Metal3DataTemplate{}
	require.NoError(t, served.ConvertFrom(stored))
	assert.Equal(t, []infrav1.MetaDataFromPool{{Key: "a", Name: "lan"}, {Key: "b", Name: "lan"}}, served.Spec.MetaData.IPAddressesFromPool)
	assert.Equal(t, []v1beta2.BondParameter{
		{Name: "lacp_rate", Value: &apiextensionsv1.JSON{Raw: []byte(`"fast"`)}}, {Name: "miimon", Value: &apiextensionsv1.JSON{Raw: []byte("100")}},
	}, served.Spec.NetworkData.Links.Bonds[0].Parameters)
	assert.Equal(t, []v1beta2.IndexEntry{{Name: "a", Index: 1}, {Name: "b", Index: 0}}, served.Status.Indexes)

	t.Run("a template whose labels change keeps what v1beta2 cannot say", func(t *testing.T) {
		changed, back := served.DeepCopy(), &infrav1.Metal3DataTemplate{}
		changed.Labels = map[string]string{"zone": "a"}
		require.NoError(t, changed.ConvertTo(back))
		assertSameWire(t, stored.Spec, back.Spec)
		assert.Empty(t, back.Annotations)
	})
	t.Run("a template that was rewritten has what was written", func(t *testing.T) {
		changed, back := served.DeepCopy(), &infrav1.Metal3DataTemplate{}
		changed.Spec.MetaData.IPAddressesFromPool = changed.Spec.MetaData.IPAddressesFromPool[:1]
		require.NoError(t, changed.ConvertTo(back))
		assert.Empty(t, back.Spec.TemplateReference)
		assert.Equal(t, []infrav1.MetaDataFromPool{{Key: "a", Name: "lan"}}, back.Spec.MetaData.IPAddressesFromIPPool)
		assert.Empty(t, back.Spec.MetaData.IPAddressesFromPool)
	})
	t.Run("an annotation that is no spec is refused", func(t *testing.T) {
		changed := served.DeepCopy()
		changed.Annotations = map[string]string{v1beta2.StoredSpecAnnotation: "{"}
		require.ErrorContains(t, changed.ConvertTo(&infrav1.Metal3DataTemplate{}), v1beta2.StoredSpecAnnotation)
	})
}
