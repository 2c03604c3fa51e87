// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package render

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"sigs.k8s.io/yaml"

	infrav1 "github.com/muster-io/muster/apis/infrastructure/v1beta1"
)

// providerID is the key that is in all metadata.
const providerID = "providerid"

// MetaData renders the metadata of a template: a flat map of strings as YAML, keys in order.
func MetaData(template *infrav1.MetaData, subject *Subject, addresses Addresses) ([]byte, error) {
	values := map[string]string{}
	// The more specific comes later: of a key that is there twice the last one counts.
	for _, add := range []func(*infrav1.MetaData, *Subject, Addresses, map[string]string) error{
		addInterfaces, addFromPools, addIndexes, addNames, addNotes, addStrings,
	} {
		if err := add(template, subject, addresses, values); err != nil {
			return nil, err
		}
	}
	values[providerID] = subject.Namespace + "/" + subject.Host.Name + "/" + subject.Name
	return yaml.Marshal(values)
}

func addressEntries(m *infrav1.MetaData) []infrav1.MetaDataFromPool {
	return slices.Concat(m.IPAddressesFromIPPool, m.IPAddressesFromPool)
}

func prefixEntries(m *infrav1.MetaData) []infrav1.MetaDataFromPool {
	return slices.Concat(m.PrefixesFromIPPool, m.PrefixesFromPool)
}

func gatewayEntries(m *infrav1.MetaData) []infrav1.MetaDataFromPool {
	return slices.Concat(m.GatewaysFromIPPool, m.GatewaysFromPool)
}

func dnsEntries(m *infrav1.MetaData) []infrav1.MetaDataFromPool {
	return slices.Concat(m.DNSServersFromIPPool, m.DNSServersFromPool)
}

func addInterfaces(m *infrav1.MetaData, s *Subject, _ Addresses, values map[string]string) error {
	for _, entry := range m.FromHostInterfaces {
		if entry.FromBootMAC {
			if s.BootMAC == "" {
				return fmt.Errorf("BareMetalHost %s states no bootMACAddress", s.Host.Name)
			}
			values[entry.Key] = s.BootMAC
			continue
		}
		mac, err := s.nic(entry.Interface)
		if err != nil {
			return err
		}
		values[entry.Key] = mac
	}
	return nil
}

func addFromPools(m *infrav1.MetaData, _ *Subject, addresses Addresses, values map[string]string) error {
	for _, part := range []struct {
		entries []infrav1.MetaDataFromPool
		text    func(pool string, a Address) (string, error)
	}{
		{addressEntries(m), func(_ string, a Address) (string, error) { return a.IP, nil }},
		{prefixEntries(m), func(pool string, a Address) (string, error) {
			prefix, err := a.prefix(pool)
			return strconv.Itoa(prefix), err
		}},
		{gatewayEntries(m), func(_ string, a Address) (string, error) { return a.Gateway, nil }},
		{dnsEntries(m), func(_ string, a Address) (string, error) { return strings.Join(a.DNSServers, ","), nil }},
	} {
		for _, entry := range part.entries {
			address, err := addresses.of(entry.Name)
			if err != nil {
				return err
			}
			if values[entry.Key], err = part.text(entry.Name, address); err != nil {
				return err
			}
		}
	}
	return nil
}

func addIndexes(m *infrav1.MetaData, s *Subject, _ Addresses, values map[string]string) error {
	for _, entry := range m.Indexes {
		step := 1
		if entry.Step != nil && *entry.Step != 0 {
			step = *entry.Step
		}
		values[entry.Key] = entry.Prefix + strconv.Itoa(entry.Offset+s.Index*step) + entry.Suffix
	}
	return nil
}

func addNames(m *infrav1.MetaData, s *Subject, _ Addresses, values map[string]string) error {
	for _, entry := range m.Namespaces {
		values[entry.Key] = s.Namespace
	}
	for _, entry := range m.ObjectNames {
		object, err := s.object(entry.Object)
		if err != nil {
			return err
		}
		values[entry.Key] = object.Name
	}
	return nil
}

func addNotes(m *infrav1.MetaData, s *Subject, _ Addresses, values map[string]string) error {
	for _, entry := range m.FromLabels {
		object, err := s.object(entry.Object)
		if err != nil {
			return err
		}
		values[entry.Key] = object.Labels[entry.Label]
	}
	for _, entry := range m.FromAnnotations {
		value, err := s.annotation(infrav1.AnnotationReference{Object: entry.Object, Annotation: entry.Annotation})
		if err != nil {
			return err
		}
		values[entry.Key] = value
	}
	return nil
}

func addStrings(m *infrav1.MetaData, _ *Subject, _ Addresses, values map[string]string) error {
	for _, entry := range m.Strings {
		values[entry.Key] = entry.Value
	}
	return nil
}
