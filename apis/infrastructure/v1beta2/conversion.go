// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package v1beta2

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/controller-runtime/pkg/conversion"

	infrav1 "github.com/muster-io/muster/apis/infrastructure/v1beta1"
)

// StoredSpecAnnotation holds, on a Metal3DataTemplate that is read as v1beta2, the spec that is stored where v1beta2 cannot say all of it: templateReference and other
// spellings. It is never stored. Written back, a template whose spec means the same gets the stored spec again, so that a v1beta1 manifest fits it still.
const StoredSpecAnnotation = "infrastructure.cluster.x-k8s.io/v1beta1-spec"

// ConvertTo implements conversion.Convertible: it writes the template as v1beta1, which is what is stored.
func (t *Metal3DataTemplate) ConvertTo(hub conversion.Hub) error {
	stored := hub.(*infrav1.Metal3DataTemplate)
	stored.ObjectMeta = *t.ObjectMeta.DeepCopy()
	stored.Spec = storedSpec(&t.Spec)
	stored.Status = infrav1.Metal3DataTemplateStatus{LastUpdated: t.Status.LastUpdated.DeepCopy()}
	for _, entry := range t.Status.Indexes {
		if stored.Status.Indexes == nil {
			stored.Status.Indexes = map[string]int{}
		}
		stored.Status.Indexes[entry.Name] = int(entry.Index)
	}
	before, ok := stored.Annotations[StoredSpecAnnotation]
	if !ok {
		return nil
	}
	if delete(stored.Annotations, StoredSpecAnnotation); len(stored.Annotations) == 0 {
		stored.Annotations = nil
	}
	var spec infrav1.Metal3DataTemplateSpec
	if err := json.Unmarshal([]byte(before), &spec); err != nil {
		return fmt.Errorf("reading the annotation %s: %w", StoredSpecAnnotation, err)
	}
	if same, err := equal(specOf(&spec), specOf(&stored.Spec)); err != nil || !same {
		return err
	}
	stored.Spec = spec
	return nil
}

// ConvertFrom implements conversion.Convertible: it reads a template that is stored as v1beta1.
func (t *Metal3DataTemplate) ConvertFrom(hub conversion.Hub) error {
	stored := hub.(*infrav1.Metal3DataTemplate)
	t.ObjectMeta = *stored.ObjectMeta.DeepCopy()
	t.Spec = specOf(&stored.Spec)
	t.Status = Metal3DataTemplateStatus{LastUpdated: stored.Status.LastUpdated.DeepCopy()}
	for _, name := range slices.Sorted(maps.Keys(stored.Status.Indexes)) {
		t.Status.Indexes = append(t.Status.Indexes, IndexEntry{Name: name, Index: int32(stored.Status.Indexes[name])}) //nolint:gosec // an index is less than the number of claims
	}
	delete(t.Annotations, StoredSpecAnnotation)
	back := storedSpec(&t.Spec)
	if same, err := equal(back, stored.Spec); err != nil || same {
		return err
	}
	spec, err := json.Marshal(stored.Spec)
	if err != nil {
		return fmt.Errorf("writing the annotation %s: %w", StoredSpecAnnotation, err)
	}
	if t.Annotations == nil {
		t.Annotations = map[string]string{}
	}
	t.Annotations[StoredSpecAnnotation] = string(spec)
	return nil
}

// equal compares what is on the wire: absent and empty are one there.
func equal[T any](a, b T) (bool, error) {
	var decoded [2]any
	for i, value := range []T{a, b} {
		content, err := json.Marshal(value)
		if err == nil {
			err = json.Unmarshal(content, &decoded[i])
		}
		if err != nil {
			return false, fmt.Errorf("comparing specs: %w", err)
		}
	}
	return reflect.DeepEqual(decoded[0], decoded[1]), nil
}

// specOf reads a spec that is stored.
func specOf(stored *infrav1.Metal3DataTemplateSpec) Metal3DataTemplateSpec {
	stored = stored.DeepCopy()
	spec := Metal3DataTemplateSpec{ClusterName: stored.ClusterName}
	if m := stored.MetaData; m != nil {
		spec.MetaData = &MetaData{
			Strings: m.Strings, ObjectNames: m.ObjectNames, Indexes: m.Indexes, Namespaces: m.Namespaces,
			IPAddressesFromPool: slices.Concat(m.IPAddressesFromIPPool, m.IPAddressesFromPool),
			PrefixesFromPool:    slices.Concat(m.PrefixesFromIPPool, m.PrefixesFromPool),
			GatewaysFromPool:    slices.Concat(m.GatewaysFromIPPool, m.GatewaysFromPool),
			DNSServersFromPool:  slices.Concat(m.DNSServersFromIPPool, m.DNSServersFromPool),
			FromHostInterfaces:  m.FromHostInterfaces, FromLabels: m.FromLabels, FromAnnotations: m.FromAnnotations,
		}
	}
	if n := stored.NetworkData; n != nil {
		spec.NetworkData = &NetworkData{
			Links:    NetworkLinks{Ethernets: n.Links.Ethernets, VLANs: n.Links.VLANs},
			Networks: n.Networks, Services: n.Services,
		}
		for i := range n.Links.Bonds {
			spec.NetworkData.Links.Bonds = append(spec.NetworkData.Links.Bonds, bondOf(&n.Links.Bonds[i]))
		}
		spellOnce(&spec.NetworkData.Networks)
	}
	return spec
}

// spellOnce moves the names of pools to the spelling that v1beta2 has. The other one counts only where that is empty.
func spellOnce(networks *infrav1.Networks) {
	move := func(source *infrav1.NetworkSource) {
		if source.IPAddressFromIPPool == "" {
			source.IPAddressFromIPPool = source.IPAddressfromIPPool
		}
		source.IPAddressfromIPPool = ""
	}
	for i := range networks.IPv4 {
		move(&networks.IPv4[i].NetworkSource)
	}
	for i := range networks.IPv6 {
		move(&networks.IPv6[i].NetworkSource)
	}
}

func bondOf(stored *infrav1.Bond) Bond {
	bond := Bond{
		BondMode: stored.BondMode, BondXmitHashPolicy: stored.BondXmitHashPolicy, ID: stored.ID, Name: stored.Name, MTU: stored.MTU, MACAddress: stored.MACAddress,
		BondLinks: stored.BondLinks,
	}
	for _, name := range slices.Sorted(maps.Keys(stored.Parameters)) {
		bond.Parameters = append(bond.Parameters, BondParameter{Name: name, Value: new(stored.Parameters[name])})
	}
	return bond
}

// storedSpec writes a spec as it is stored.
func storedSpec(spec *Metal3DataTemplateSpec) infrav1.Metal3DataTemplateSpec {
	spec = spec.DeepCopy()
	stored := infrav1.Metal3DataTemplateSpec{ClusterName: spec.ClusterName}
	if m := spec.MetaData; m != nil {
		stored.MetaData = &infrav1.MetaData{
			Strings: m.Strings, ObjectNames: m.ObjectNames, Indexes: m.Indexes, Namespaces: m.Namespaces,
			IPAddressesFromIPPool: m.IPAddressesFromPool, PrefixesFromIPPool: m.PrefixesFromPool,
			GatewaysFromIPPool: m.GatewaysFromPool, DNSServersFromIPPool: m.DNSServersFromPool,
			FromHostInterfaces: m.FromHostInterfaces, FromLabels: m.FromLabels, FromAnnotations: m.FromAnnotations,
		}
	}
	if n := spec.NetworkData; n != nil {
		stored.NetworkData = &infrav1.NetworkData{
			Links:    infrav1.NetworkLinks{Ethernets: n.Links.Ethernets, VLANs: n.Links.VLANs},
			Networks: n.Networks, Services: n.Services,
		}
		for i := range n.Links.Bonds {
			stored.NetworkData.Links.Bonds = append(stored.NetworkData.Links.Bonds, storedBond(&n.Links.Bonds[i]))
		}
	}
	return stored
}

func storedBond(bond *Bond) infrav1.Bond {
	stored := infrav1.Bond{
		BondMode: bond.BondMode, BondXmitHashPolicy: bond.BondXmitHashPolicy, ID: bond.ID, Name: bond.Name, MTU: bond.MTU, MACAddress: bond.MACAddress,
		BondLinks: bond.BondLinks,
	}
	for _, parameter := range bond.Parameters {
		if stored.Parameters == nil {
			stored.Parameters = map[string]apiextensionsv1.JSON{}
		}
		value := apiextensionsv1.JSON{Raw: []byte("null")}
		if parameter.Value != nil {
			value = *parameter.Value
		}
		stored.Parameters[parameter.Name] = value
	}
	return stored
}
