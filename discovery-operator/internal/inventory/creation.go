// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"fmt"
	"maps"
	"strings"

	metal3v1 "github.com/muster-io/muster/apis/metal3/v1alpha1"
)

// claim makes the rest of the pass see the host that is about to be created.
func (p *planner) claim(m *Machine, v Verdict, c CreateHost) {
	p.index.add(&Host{
		Ref: Ref{p.self.Namespace, v.Name}, Created: p.Now, NodeID: m.Node.UUID, BootMAC: v.BootMAC, MACs: m.Report.MACs,
		Serial: NormalSerial(m.Report.Hardware.SystemVendor.SerialNumber), BMC: reportedBMC(m.Report),
		BMCKey: BMCKey(c.BMCAddress),
	})
}

// sharesBMC returns the host that has the management controller of a new host already; nil if there is none. Addresses of templates can be the same although
// the machines reported different ones.
func (p *planner) sharesBMC(c CreateHost) *Host {
	if c.BMCAddress == "" || p.self.IgnoreBMC {
		return nil
	}
	return p.index.find(byBMCKey, BMCKey(c.BMCAddress))
}

func reportedBMC(r *Report) string {
	if r.BMCAddress == "" {
		return ""
	}
	return NormalBMC(r.BMCAddress)
}

func (p *planner) creation(m *Machine, v Verdict, detail metal3v1.HardwareDetail, facts Facts) (CreateHost, error) {
	_, rule := bootMAC(m)
	c := CreateHost{
		Host: Ref{p.self.Namespace, v.Name}, Node: m.Node.UUID, BootMAC: v.BootMAC, BootRule: rule, Detail: detail,
		FellBack: detail != p.self.Template.HardwareDetails, Manual: p.self.Manual, ShareBMC: p.self.IgnoreBMC, Report: m.Report, Machine: m,
		Labels: map[string]string{}, Annotations: map[string]string{},
	}
	for key, text := range p.self.Labels {
		value, err := text.Value(facts)
		if err != nil {
			return c, fmt.Errorf("label %s: %w", key, err)
		}
		c.Labels[key] = LegalLabel(value)
	}
	if c.Manual && p.self.Approves != nil {
		c.Ruled, _ = p.self.Approves.Match(facts) // where it fails, a user has to approve
		c.Manual = !c.Ruled
	}
	if err := p.bmc(&c, facts); err != nil {
		return c, err
	}
	for key, text := range p.self.Annotations {
		value, err := text.Value(facts)
		if err != nil {
			return c, fmt.Errorf("annotation %s: %w", key, err)
		}
		c.Annotations[key] = clean(value)
	}
	return c, nil
}

// bmc gives a host its management controller, if the machine reported one and there is a Secret for it.
func (p *planner) bmc(c *CreateHost, facts Facts) error {
	rule := p.self.BMC
	if rule == nil || NormalBMC(c.Report.BMCAddress) == "" {
		return nil
	}
	with := maps.Clone(facts)
	if strings.Contains(c.Report.BMCAddress, ":") {
		with["bmcAddress"] = "[" + c.Report.BMCAddress + "]"
	}
	address, err := rule.Address.Value(with)
	if err != nil {
		return fmt.Errorf("bmc.address: %w", err)
	}
	secret := rule.Secret
	for _, s := range rule.Secrets {
		fits := strings.HasPrefix(c.BootMAC, s.MACPrefix)
		if fits && s.Selects != nil {
			if fits, err = s.Selects.Match(facts); err != nil {
				return fmt.Errorf("bmc.credentials of %s: %w", s.Secret, err)
			}
		}
		if fits {
			secret = s.Secret
			break
		}
	}
	if secret != "" {
		c.BMCAddress, c.BMCSecret = clean(address), secret
	}
	return nil
}
