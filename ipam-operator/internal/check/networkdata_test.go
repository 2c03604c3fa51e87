// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package check

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	infrav1 "github.com/muster-io/muster/apis/infrastructure/v1beta1"
	ipamv1 "github.com/muster-io/muster/apis/ipam/v1alpha1"
)

func template(indexes map[string]int) *infrav1.Metal3DataTemplate {
	return &infrav1.Metal3DataTemplate{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "t"}, Status: infrav1.Metal3DataTemplateStatus{Indexes: indexes},
	}
}

func dataClaim(name, data string) *infrav1.Metal3DataClaim {
	return &infrav1.Metal3DataClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID("uid-" + name)},
		Status:     infrav1.Metal3DataClaimStatus{RenderedData: &infrav1.ObjectReference{Name: data}},
	}
}

func data(name string, index int, claim, secret string) *infrav1.Metal3Data {
	return &infrav1.Metal3Data{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: name, UID: types.UID("uid-" + name),
			OwnerReferences: []metav1.OwnerReference{{Kind: infrav1.Metal3DataClaimKind, Name: claim, UID: types.UID("uid-" + claim)}},
		},
		Spec: infrav1.Metal3DataSpec{
			Index: index, Template: infrav1.ObjectReference{Name: "t"}, Claim: infrav1.ObjectReference{Name: claim}, MetaData: &infrav1.SecretReference{Name: secret},
		},
		Status: infrav1.Metal3DataStatus{Ready: true},
	}
}

func TestNetworkDataIsChecked(t *testing.T) {
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "there"}}
	left := claim("t-9-p", "")
	left.OwnerReferences = []metav1.OwnerReference{{Kind: infrav1.Metal3DataKind, Name: "t-9", UID: "uid-t-9", Controller: new(true)}}
	again := dataClaim("again", "t-3")
	again.UID = "uid-of-the-second"
	for name, test := range map[string]struct {
		objects []client.Object
		want    []string
	}{
		"no findings": {objects: []client.Object{secret, template(map[string]int{"a": 0}), dataClaim("a", "t-0"), data("t-0", 0, "a", "there")}},
		"everything is wrong": {
			objects: []client.Object{
				dataClaim("a", "t-0"), data("t-0", 0, "a", "lost"), data("t-1", 7, "a", "lost"), dataClaim("b", "t-0"), dataClaim("c", "t-5"),
				data("t-2", 2, "gone", "lost"), again, data("t-3", 3, "again", "lost"), left,
			},
			want: []string{
				"dangling  Metal3Data ns/t-0: its Metal3DataTemplate t does not exist",
				"dangling  Metal3Data ns/t-0: its Secret lost does not exist",
				"dangling  Metal3Data ns/t-1: its Metal3DataTemplate t does not exist",
				"dangling  Metal3Data ns/t-1: its Secret lost does not exist",
				"dangling  Metal3Data ns/t-2: its Metal3DataTemplate t does not exist",
				"dangling  Metal3Data ns/t-2: its Secret lost does not exist",
				"dangling  Metal3Data ns/t-3: its Metal3DataTemplate t does not exist",
				"dangling  Metal3Data ns/t-3: its Secret lost does not exist",
				"dangling  Metal3DataClaim ns/c: its Metal3Data t-5 does not exist",
				"double    Metal3Data ns/t-1: Metal3DataClaim a has Metal3Data t-0 too",
				"double    Metal3DataClaim ns/b: names Metal3Data t-0, as Metal3DataClaim a does",
				"mismatch  Metal3Data ns/t-1: has index 7, whose name in the template is t-7",
				"mismatch  Metal3DataClaim ns/b: its Metal3Data t-0 belongs to a",
				"orphan    IPClaim ns/t-9-p: its Metal3Data t-9 does not exist",
				"orphan    Metal3Data ns/t-2: its Metal3DataClaim gone does not exist",
				"orphan    Metal3Data ns/t-3: its Metal3DataClaim again was deleted and created again",
			},
		},
		"a status that is behind": {
			objects: []client.Object{template(map[string]int{"a": 0})},
			want:    []string{"mismatch  Metal3DataTemplate ns/t: status.indexes gives 0 to a, who does not have it"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			scheme := runtime.NewScheme()
			for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, ipamv1.AddToScheme, infrav1.AddToScheme} {
				require.NoError(t, add(scheme))
			}
			findings, err := Run(t.Context(), fake.NewClientBuilder().WithScheme(scheme).WithObjects(test.objects...).Build(), "")
			require.NoError(t, err)
			var got []string
			for _, finding := range findings {
				got = append(got, finding.String())
			}
			assert.Equal(t, test.want, got)
		})
	}
}
