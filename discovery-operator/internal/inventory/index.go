// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package inventory

// index finds hosts by what identifies their machines.
type index struct {
	byNode, byName, byBoot, byMAC, bySerial, byBMC map[string]*Host
}

// newIndex reads the hosts once. Where two hosts share an identity, the first in the order of the list is found.
func newIndex(hosts []Host) *index {
	n := len(hosts)
	x := &index{
		byNode: make(map[string]*Host, n), byName: make(map[string]*Host, n), byBoot: make(map[string]*Host, n),
		byMAC: make(map[string]*Host, 2*n), bySerial: make(map[string]*Host, n), byBMC: make(map[string]*Host, n),
	}
	for i := range hosts {
		x.add(&hosts[i])
	}
	return x
}

func (x *index) add(h *Host) {
	put(x.byNode, h.NodeID, h)
	put(x.byName, h.Namespace+"~"+h.Name, h)
	put(x.byBoot, h.BootMAC, h)
	for _, mac := range h.MACs {
		put(x.byMAC, mac, h)
	}
	put(x.bySerial, h.Serial, h)
	put(x.byBMC, h.BMC, h)
}

func put(m map[string]*Host, key string, h *Host) {
	if key == "" {
		return
	}
	if _, taken := m[key]; !taken {
		m[key] = h
	}
}

// owner returns the host that a machine belongs to: by the node's UUID, by the node's name, or by a port that is the boot MAC
// of the host; nil if there is none.
func (x *index) owner(m *Machine) *Host {
	if h := x.byNode[m.Node.UUID]; h != nil {
		return h
	}
	if m.Node.Name != "" {
		if h := x.byName[m.Node.Name]; h != nil {
			return h
		}
	}
	for _, p := range m.Ports {
		if h := x.byBoot[p.MAC]; h != nil {
			return h
		}
	}
	return nil
}

// double returns a host that shares an identity with a machine without owning it, with the identity; nil if there is none.
func (x *index) double(m *Machine) (h *Host, kind, value string) {
	for _, p := range m.Ports {
		if h := x.byMAC[p.MAC]; h != nil {
			return h, "MAC", p.MAC
		}
	}
	if m.Report == nil {
		return nil, "", ""
	}
	for _, mac := range m.Report.MACs {
		if h := x.byMAC[mac]; h != nil {
			return h, "MAC", mac
		}
	}
	if s := NormalSerial(m.Report.Hardware.SystemVendor.SerialNumber); s != "" {
		if h := x.bySerial[s]; h != nil {
			return h, "serial", s
		}
	}
	if b := NormalBMC(m.Report.BMCAddress); m.Report.BMCAddress != "" && b != "" {
		if h := x.byBMC[b]; h != nil {
			return h, "BMC", b
		}
	}
	return nil, "", ""
}
