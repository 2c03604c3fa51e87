// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package inventory

// index finds hosts by what identifies their machines. Each table is built when it is first asked, because most machines
// are found by the UUID of their node, and the other tables are the larger part of a pass over a large fleet.
type index struct {
	hosts []*Host
	built [identities]map[string]*Host
}

// identity is something by which a host is found.
type identity int

const (
	byNode identity = iota
	byName
	byBoot
	byMAC
	bySerial
	byBMC
	byBMCKey
	identities
)

func newIndex(hosts []Host) *index {
	x := &index{hosts: make([]*Host, len(hosts))}
	for i := range hosts {
		x.hosts[i] = &hosts[i]
	}
	return x
}

// add makes a host findable that was not in the list.
func (x *index) add(h *Host) {
	x.hosts = append(x.hosts, h)
	for id, table := range x.built {
		if table != nil {
			put(table, identity(id), h)
		}
	}
}

// find returns the host with an identity; where several share it, the one that goes before the others, but for nodes one with a status, which
// only operators write; nil if there is none.
func (x *index) find(id identity, key string) *Host {
	table := x.built[id]
	if table == nil {
		table = make(map[string]*Host, len(x.hosts))
		for _, h := range x.hosts {
			put(table, id, h)
		}
		x.built[id] = table
	}
	return table[key]
}

func put(table map[string]*Host, id identity, h *Host) {
	switch id {
	case byNode:
		if known := table[h.NodeID]; known == nil || known.HasStatus == h.HasStatus {
			putOne(table, h.NodeID, h)
		} else if h.HasStatus {
			table[h.NodeID] = h
		}
	case byName:
		putOne(table, h.Namespace+"~"+h.Name, h)
	case byBoot:
		putOne(table, h.BootMAC, h)
	case byMAC:
		for _, mac := range h.MACs {
			putOne(table, mac, h)
		}
	case bySerial:
		putOne(table, h.Serial, h)
	case byBMC:
		putOne(table, h.BMC, h)
	case byBMCKey:
		putOne(table, h.BMCKey, h)
	case identities:
	}
}

func putOne(table map[string]*Host, key string, h *Host) {
	if key == "" {
		return
	}
	if known := table[key]; known == nil || h.before(known) {
		table[key] = h
	}
}

// before reports whether a host goes before another one of the same identity: it is older, or as old and has a node.
func (h *Host) before(other *Host) bool {
	switch {
	case !h.Created.Equal(other.Created):
		return h.Created.Before(other.Created)
	case (h.NodeID != "") != (other.NodeID != ""):
		return h.NodeID != ""
	default:
		return h.String() < other.String()
	}
}

// owner returns the host that a machine belongs to: by the node's UUID, by the node's name, or by a port that is the boot MAC
// of the host; nil if there is none.
func (x *index) owner(m *Machine) *Host {
	if h := x.find(byNode, m.Node.UUID); h != nil {
		return h
	}
	if m.Node.Name != "" {
		if h := x.find(byName, m.Node.Name); h != nil {
			return h
		}
	}
	for i := range m.Ports {
		if h := x.find(byBoot, m.Ports[i].MAC); h != nil {
			return h
		}
	}
	return nil
}

// double returns a host that shares an identity with a machine without owning it, with the identity; nil if there is none. Some identities do not count
// for some resources.
func (x *index) double(m *Machine, r *Resource) (h *Host, kind identity, value string) {
	for i := range m.Ports {
		if h := x.find(byMAC, m.Ports[i].MAC); h != nil {
			return h, byMAC, m.Ports[i].MAC
		}
	}
	if m.Report == nil {
		return nil, identities, ""
	}
	for _, mac := range m.Report.MACs {
		if h := x.find(byMAC, mac); h != nil {
			return h, byMAC, mac
		}
	}
	if s := NormalSerial(m.Report.Hardware.SystemVendor.SerialNumber); s != "" && !r.IgnoreSerial {
		if h := x.find(bySerial, s); h != nil {
			return h, bySerial, s
		}
	}
	if b := reportedBMC(m.Report); b != "" && !r.IgnoreBMC {
		if h := x.find(byBMC, b); h != nil {
			return h, byBMC, b
		}
	}
	return nil, identities, ""
}
