// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package render

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	infrav1 "github.com/muster-io/muster/apis/infrastructure/v1beta1"
	ipamv1 "github.com/muster-io/muster/apis/ipam/v1alpha1"
)

// errTwoKinds is the known wording for one name that means two pools.
var errTwoKinds = errors.New("multiple references with the same name but different resource types")

// Pool is a pool that a template names.
type Pool struct{ Group, Kind, Name string }

// IsIPPool reports whether the pool is an IPPool of ipam.metal3.io.
func (p Pool) IsIPPool() bool {
	return p.Group == ipamv1.GroupVersion.Group && p.Kind == ipamv1.IPPoolKind
}

// poolOf fills in what a reference leaves out.
func poolOf(group, kind, name string) Pool {
	return Pool{Group: cmp.Or(group, ipamv1.GroupVersion.Group), Kind: cmp.Or(kind, ipamv1.IPPoolKind), Name: name}
}

// Address is what a machine has got of a pool.
type Address struct {
	IP         string
	Prefix     int
	Gateway    string
	DNSServers []string
}

// prefix is the length of the network prefix in bits. Without one there is no network to render.
func (a Address) prefix(pool string) (int, error) {
	if a.Prefix == 0 {
		return 0, fmt.Errorf("address %s of pool %s has no prefix: write prefix or subnet into the pool", a.IP, pool)
	}
	return a.Prefix, nil
}

// Addresses are the addresses of a machine, by the name of their pool.
type Addresses map[string]Address

func (a Addresses) of(pool string) (Address, error) {
	address, ok := a[pool]
	if !ok {
		return address, fmt.Errorf("no address of pool %s", pool)
	}
	return address, nil
}

// pools collects pools by name.
type pools struct {
	subject *Subject
	known   map[string]Pool
	err     error
}

func (p *pools) add(pool Pool, err error) {
	known, twice := p.known[pool.Name]
	switch {
	case p.err != nil:
	case err != nil:
		p.err = err
	case pool.Name == "":
	case twice && known != pool:
		p.err = fmt.Errorf("%w: %s", errTwoKinds, pool.Name)
	default:
		p.known[pool.Name] = pool
	}
}

func (p *pools) addName(name *string) {
	if name != nil {
		p.add(poolOf("", "", *name), nil)
	}
}

func (p *pools) addRoutes(routes []route) {
	for i := range routes {
		if routes[i].gateway == "" {
			p.add(routes[i].from.pool(p.subject))
		}
		p.addName(routes[i].dnsFrom)
	}
}

// Pools are the pools that a template takes an address from, in the order of their names.
func Pools(template *infrav1.Metal3DataTemplateSpec, subject *Subject) ([]Pool, error) {
	p := &pools{subject: subject, known: map[string]Pool{}}
	if meta := template.MetaData; meta != nil {
		for _, entry := range slices.Concat(addressEntries(meta), prefixEntries(meta), gatewayEntries(meta), dnsEntries(meta)) {
			p.add(poolOf(entry.APIGroup, entry.Kind, entry.Name), nil)
		}
	}
	if data := template.NetworkData; data != nil {
		for _, network := range networksOf(&data.Networks) {
			if network.source != nil {
				p.add(network.source.pool(subject))
			}
			p.addRoutes(network.routes)
		}
		p.addName(data.Services.DNSFromIPPool)
	}
	if p.err != nil {
		return nil, p.err
	}
	out := make([]Pool, 0, len(p.known))
	for _, pool := range p.known {
		out = append(out, pool)
	}
	slices.SortFunc(out, func(a, b Pool) int { return cmp.Compare(a.Name, b.Name) })
	return out, nil
}

// source says where something that a pool gives comes from.
type source struct {
	annotation *infrav1.AnnotationReference
	ref        *infrav1.PoolReference
	name       string
}

// pool of a source: the annotation counts before the reference, and that before the name. None has no name.
func (s source) pool(subject *Subject) (Pool, error) {
	switch {
	case s.annotation != nil:
		name, err := subject.annotation(*s.annotation)
		if err == nil && name == "" {
			err = fmt.Errorf("annotation %s of the %s names no pool", s.annotation.Annotation, s.annotation.Object)
		}
		return poolOf("", "", name), err
	case s.ref != nil && s.ref.Name != "":
		return poolOf(s.ref.APIGroup, s.ref.Kind, s.ref.Name), nil
	default:
		return poolOf("", "", s.name), nil
	}
}
