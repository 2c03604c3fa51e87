// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package render writes the metadata and the network data of a machine, as a template says. It is pure: equal input gives
// equal bytes.
//
// The words of network data are those of OpenStack's network_data.json.
package render

import (
	"errors"
	"fmt"
	"regexp"

	infrav1 "github.com/muster-io/muster/apis/infrastructure/v1beta1"
)

// Known wordings of what cannot be rendered.
var (
	errNoNICs = errors.New("NICs list not populated")
	errNoMAC  = errors.New("no MAC address given")
)

// Object is what a template can tell of an object.
type Object struct {
	Name        string
	Labels      map[string]string
	Annotations map[string]string
}

// NIC is an interface that inspection found.
type NIC struct {
	Name string
	MAC  string
}

// Subject is the machine that data is rendered for.
type Subject struct {
	// Namespace of all of its objects.
	Namespace string
	// Name of the machine, as in the names of its Secrets.
	Name string
	// Index of its Metal3Data.
	Index int
	// Host is its BareMetalHost.
	Host Object
	// Metal3Machine and Machine are those of Cluster API; nil for a host that no machine runs on.
	Metal3Machine, Machine *Object
	// BootMAC is the MAC address that the host boots from; empty where it is unknown.
	BootMAC string
	// NICs are the interfaces of the host; none before it was inspected.
	NICs []NIC
}

// object finds an object of the machine.
func (s *Subject) object(kind infrav1.MachineObject) (*Object, error) {
	var found *Object
	switch kind {
	case infrav1.MachineObjectHost:
		return &s.Host, nil
	case infrav1.MachineObjectMetal3Machine:
		found = s.Metal3Machine
	case infrav1.MachineObjectMachine:
		found = s.Machine
	default:
		return nil, fmt.Errorf("unknown object %q: write machine, metal3machine or baremetalhost", kind)
	}
	if found == nil {
		return nil, fmt.Errorf("%s has no %s: the claim belongs to a BareMetalHost", s.Name, kind)
	}
	return found, nil
}

func (s *Subject) annotation(ref infrav1.AnnotationReference) (string, error) {
	object, err := s.object(ref.Object)
	if err != nil {
		return "", err
	}
	return object.Annotations[ref.Annotation], nil
}

// nic finds the MAC address of an interface.
func (s *Subject) nic(name string) (string, error) {
	if len(s.NICs) == 0 {
		return "", errNoNICs
	}
	for _, nic := range s.NICs {
		if nic.Name == name {
			return nic.MAC, nil
		}
	}
	return "", fmt.Errorf("NIC name not found %s", name)
}

var macPattern = regexp.MustCompile(`^([0-9A-Fa-f]{2}[:-]){5}[0-9A-Fa-f]{2}$`)

// mac is the address of a link; empty for a link that is found by its name.
func (s *Subject) mac(from *infrav1.LinkMAC) (string, error) {
	if from == nil {
		return "", nil
	}
	var mac string
	var err error
	switch {
	case from.String != nil:
		mac = *from.String
	case from.FromHostInterface != nil:
		mac, err = s.nic(*from.FromHostInterface)
	case from.FromAnnotation != nil:
		mac, err = s.annotation(*from.FromAnnotation)
	default:
		err = errNoMAC
	}
	if err == nil && !macPattern.MatchString(mac) {
		err = fmt.Errorf("bad MAC address: %s", mac)
	}
	return mac, err
}
