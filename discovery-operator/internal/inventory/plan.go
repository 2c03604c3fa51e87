// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"fmt"
	"maps"
	"strings"
	"time"

	metal3v1 "github.com/muster-io/muster/apis/metal3/v1alpha1"
)

// BatchSize bounds the hosts that one decision creates, so that what it rests on does not grow old.
const BatchSize = 500

// fetchSize bounds the reports that are asked for and those that wait for the creation of their hosts, so that reports are young when hosts are made of
// them. The rest follows.
const fetchSize = 1500

// FreshTime is how old Ironic's last word on a node may be when a host is made of a machine that waited for nothing but its turn. Older ones are asked for
// again: meanwhile the node may go. Where a machine waited for something else, Ironic is asked in any case.
const FreshTime = 30 * time.Second

// Plan decides for one resource about every machine, in the order in which Ironic made them.
func Plan(s Snapshot) Decision {
	p := &planner{Snapshot: s, index: newIndex(s.Hosts), ordered: order(s.Resources)}
	for i := range p.ordered {
		if p.ordered[i].Ref == s.Self {
			p.self = &p.ordered[i]
		}
	}
	if p.self == nil {
		return Decision{}
	}
	p.countHosts()
	found := map[*Host]bool{}
	for _, m := range s.Machines {
		if h := p.judge(m); h != nil && p.ours(h) {
			found[h] = found[h] || h.NodeID == m.Node.UUID
		}
	}
	if !s.Partial {
		p.tellLost(found)
	}
	p.Counts.Nodes = int32(len(s.Machines)) //nolint:gosec // a list of machines is shorter than 2^31
	return p.Decision
}

type planner struct {
	Snapshot
	Decision
	index   *index
	ordered []Resource
	self    *Resource
	// nodes are the UUIDs of all machines, once they were asked for.
	nodes map[string]bool
	// counters are the last counters of names, by the name without counter.
	counters map[string]int
	fetched  int
	// ready machines become hosts as soon as there is room.
	ready   int
	created int
	hosts   int
}

// MassLoss reports whether so many hosts lost their nodes at once that another Ironic, or another database, is more likely than lost machines.
func (d *Decision) MassLoss() bool {
	return d.LostHosts >= lostLimit && d.LostHosts*2 > int(d.Counts.Hosts)
}

// lostLimit is the number of lost hosts from which on more than half of all is a mass disappearance.
const lostLimit = 5

// tellLost counts the hosts whose node Ironic does not list, and has those that discovery holds say so. found are the hosts of machines, true where
// the machine still is the node that the host names; a machine that came back as another node is not lost.
func (p *planner) tellLost(found map[*Host]bool) {
	lost := func(h *Host) bool { return h.NodeID != "" && !found[h] }
	for i := range p.Hosts {
		if h := &p.Hosts[i]; p.ours(h) && lost(h) {
			p.LostHosts++
		}
	}
	p.Counts.Lost = int32(p.LostHosts) //nolint:gosec // a list of hosts is shorter than 2^31
	for i := range p.Hosts {
		h := &p.Hosts[i]
		_, back := found[h]
		gone := lost(h) && !back
		if !p.ours(h) || h.LastSeen == "" || !h.HasStatus || h.Going || gone == h.Lost || p.Frozen || gone && p.MassLoss() {
			continue
		}
		p.Actions = append(p.Actions, TellLost{Host: h.Ref, UID: h.UID, Node: h.NodeID, Lost: gone})
	}
}

func (p *planner) ours(h *Host) bool {
	return h.Resource == p.Self.Name && h.Namespace == p.Self.Namespace
}

func (p *planner) countHosts() {
	for i := range p.Hosts {
		if p.ours(&p.Hosts[i]) {
			p.hosts++
		}
	}
	p.Counts.Hosts = int32(p.hosts) //nolint:gosec // a list of hosts is shorter than 2^31
}

// listed reports whether Ironic lists a node.
func (p *planner) listed(node string) bool {
	if p.nodes == nil {
		p.nodes = make(map[string]bool, len(p.Machines))
		for _, m := range p.Machines {
			p.nodes[m.Node.UUID] = true
		}
	}
	return p.nodes[node]
}

// judge decides about one machine. It returns the host that the machine had before.
func (p *planner) judge(m *Machine) *Host {
	h := p.index.owner(m)
	if h != nil {
		p.known(m, h)
	} else {
		p.unknown(m)
	}
	return h
}

// unknown decides about a machine that has no host.
func (p *planner) unknown(m *Machine) {
	if v, refused := p.unfit(m); refused {
		p.Counts.Read++
		p.report(v)
		return
	}
	if m.Report == nil && p.ignored(m.BootMAC) { // its report was read and dropped
		p.Counts.Read++
		p.Counts.Ignored++
		return
	}
	if m.Report == nil {
		p.fetch(m)
	}
	if m.Read() {
		p.Counts.Read++
	}
	v, whole := incomplete(m)
	if !whole {
		p.report(v)
		return
	}
	if p.ignored(v.BootMAC) {
		p.Counts.Ignored++
		p.drop(m)
		return
	}
	facts := factsOf(m, v.BootMAC)
	if p.winner(m, facts) != p.self {
		p.Counts.NotSelected++
		return
	}
	p.take(m, v, facts)
}

// ignored reports whether machines with a boot MAC are kept away.
func (p *planner) ignored(mac string) bool { return p.Reservations[mac].Ignored }

// known looks after a machine that has a host. A host that this resource made gets the status that it lacks.
func (p *planner) known(m *Machine, h *Host) {
	p.Counts.Known++
	p.Counts.Read++
	replaced, again := "", h.LastSeen != "" && m.Node.Inspected != "" && m.Node.Inspected != h.LastSeen
	if h.NodeID != "" && h.NodeID != m.Node.UUID && !p.Partial && !p.listed(h.NodeID) {
		replaced = h.NodeID
	}
	switch {
	case p.rules(m, h): // its report is asked for
		return
	case p.undriven(m, h):
		p.report(Verdict{Node: m.Node.UUID, BootMAC: h.BootMAC, Name: h.Name, Reason: metal3v1.RefusedDriver, Message: fmt.Sprintf(
			"host %s is known, but its node still has the driver %s of discovery: no operator reaches its management controller. Give the node the driver %s "+
				"in Ironic and reset its interfaces, or delete the host and let discovery make it", h.Ref, m.Node.Driver, h.Driver)})
		p.drop(m)
		return
	// A host that names the node proves nothing: any user who makes a host can write so. The port does.
	case !h.Held || h.Going || h.HasStatus && replaced == "" && !again || !hasPort(m, h.BootMAC):
		p.drop(m)
		return
	case !p.ours(h): // the report is for the resource that made the host
		return
	case m.Report == nil:
		p.fetch(m)
		return
	}
	p.Actions = append(p.Actions, WriteStatus{
		Host: h.Ref, UID: h.UID, BootMAC: h.BootMAC, Node: m.Node.UUID, Report: m.Report, Replaced: replaced, Manual: h.Unapproved, Again: again,
		Inspected: m.Node.Inspected,
	})
}

// rules approves a host by a rule that is newer than the host. A rule judges a machine once. It returns whether the report is needed for that.
func (p *planner) rules(m *Machine, h *Host) (reads bool) {
	if !h.Unapproved || h.Going || !p.ours(h) || p.self.Approves == nil || p.Judged[m.Judgement()] || !hasPort(m, h.BootMAC) {
		return false
	}
	if m.Report == nil {
		p.fetch(m)
		return true
	}
	if approved, _ := p.self.Approves.Match(factsOf(m, h.BootMAC)); approved { // where it fails, a user has to approve
		p.Actions = append(p.Actions, ApproveHost{Host: h.Ref, UID: h.UID, Node: m.Node.UUID})
	} else {
		p.Unruled = append(p.Unruled, m.Judgement())
	}
	return false
}

// handOverTime is how far the clocks of those who write hosts and of those who read Ironic may be apart.
const handOverTime = 5 * time.Second

// undriven reports whether Ironic has said, since a host is as it is, that its node lacks the driver that the host needs. An older answer is asked for
// again: the mirror of a node is read seldom, and a hand-over switches the driver.
func (p *planner) undriven(m *Machine, h *Host) bool {
	if h.Held || h.Going || h.Driver == "" || h.Driver == m.Node.Driver || !idle(m.Node.State) {
		return false
	}
	switch after := h.Since.Add(handOverTime); {
	case m.Seen.After(after):
		return true
	case p.Frozen:
	case p.Looked.After(after):
		p.Actions = append(p.Actions, ConfirmNode{Node: m.Node.UUID})
	default:
		p.wake(after.Sub(p.Looked) + time.Millisecond)
	}
	return false
}

// unfit refuses machines without looking at their report: another client uses the node, or a MAC stands in another host.
func (p *planner) unfit(m *Machine) (Verdict, bool) {
	v := Verdict{Node: m.Node.UUID}
	if m.Node.Instance != "" || !idle(m.Node.State) {
		v.Reason, v.Message = metal3v1.RefusedNodeInUse, fmt.Sprintf("the node is %s and belongs to another client", m.Node.State)
		return v, true
	}
	h, kind, value := p.index.double(m, p.self)
	switch {
	case h == nil:
		return v, false
	case kind == bySerial:
		v.Reason, v.Message = metal3v1.RefusedDuplicateSerial, fmt.Sprintf("serial number %s stands in host %s too", value, h.Ref)
	case kind == byBMC:
		v.Reason, v.Message = metal3v1.RefusedDuplicateBMC, fmt.Sprintf("management controller %s stands in host %s too", value, h.Ref)
	default:
		v.Reason, v.Message = metal3v1.RefusedDuplicateMAC, fmt.Sprintf("MAC %s stands in host %s too", value, h.Ref)
	}
	return v, true
}

// winner is the resource that takes a machine: the first in order whose selector accepts it; nil if there is none.
func (p *planner) winner(m *Machine, f Facts) *Resource {
	for i := range p.ordered {
		r := &p.ordered[i]
		if r.Going || r.Broken != "" {
			continue
		}
		if r.Selects == nil {
			return r
		}
		takes, err := r.Selects.Match(f)
		if err != nil && r == p.self {
			if p.Unevaluated++; p.Unevaluated == 1 {
				p.UnevaluatedNode, p.UnevaluatedWhy = m.Node.UUID, clean(err.Error())
			}
		}
		if takes {
			return r
		}
	}
	return nil
}

// take creates the host of a whole machine that this resource has won, or says what it waits for.
func (p *planner) take(m *Machine, v Verdict, facts Facts) {
	name, detail := hostName(p.self.Template, p.naming(m, v, facts))
	v.Name = name
	create, err := p.creation(m, v, detail, facts)
	switch {
	case name == "":
		v.Reason = metal3v1.WaitingForName
		v.Message = fmt.Sprintf("the machine has no usable %s, and no fallback gives a name", p.self.Template.HardwareDetails)
	case p.index.find(byName, p.self.Namespace+"~"+name) != nil:
		v.Waiting, v.Reason = false, metal3v1.RefusedNameTaken
		v.Message = fmt.Sprintf("host %s has the name already, for another machine", Ref{p.self.Namespace, name})
	case err != nil:
		v.Waiting, v.Reason, v.Message = false, metal3v1.RefusedTemplateInvalid, clean(err.Error())
	case p.sharesBMC(create) != nil:
		v.Waiting, v.Reason = false, metal3v1.RefusedDuplicateBMC
		v.Message = fmt.Sprintf("management controller %s stands in host %s too", BMCKey(create.BMCAddress), p.sharesBMC(create).Ref)
	case p.self.MaxHosts != nil && p.hosts >= int(*p.self.MaxHosts):
		v.Waiting, v.Reason = false, metal3v1.RefusedMaxHosts
		v.Message = fmt.Sprintf("rateLimit.maxHosts %d is reached", *p.self.MaxHosts)
	case p.self.Paused:
		v.Reason, v.Message = metal3v1.WaitingForResume, "the resource is paused"
	case p.self.Dry:
		v.Reason, v.Message = metal3v1.WaitingForDryRunEnd, fmt.Sprintf("spec.mode is DryRun; host %s would be made", Ref{p.self.Namespace, name})
		p.claim(m, v, create)
	case p.Frozen:
		v.Reason, v.Message = metal3v1.WaitingForNode, "Ironic does not answer"
	case p.created >= p.Tokens:
		p.ready++
		v.Reason, v.Message = metal3v1.WaitingForRate, "rateLimit.hostsPerMinute is reached"
		p.wake(p.NextToken)
	case p.created >= BatchSize:
		p.ready++
		v.Reason, v.Message = metal3v1.WaitingForCreation, "hosts are created in batches"
		p.wake(time.Millisecond)
	case p.Looked.Sub(m.Seen) > FreshTime || p.left(m) || p.waited(m):
		p.created++
		p.Actions = append(p.Actions, ConfirmNode{Node: m.Node.UUID})
		v.Reason, v.Message = metal3v1.WaitingForNode, "Ironic is asked whether it still has the node"
	default:
		p.created++
		p.hosts++
		p.Actions = append(p.Actions, create)
		v.Reason, v.Message = metal3v1.WaitingForCreation, "the host is being created"
		p.claim(m, v, create)
	}
	p.report(v)
}

// left says whether a host of the machine's node was deleted after Ironic showed the node last.
func (p *planner) left(m *Machine) bool {
	at, left := p.Left[m.Node.UUID]
	return left && !m.NodeSeen.After(at)
}

// waited says whether the machine has waited since Ironic showed its node last.
func (p *planner) waited(m *Machine) bool {
	at, waited := p.Waited[m.Node.UUID]
	return waited && !m.NodeSeen.After(at)
}

// WaitedAfter returns the Waited of the next snapshot, after a decision: when machines last waited that may become hosts as soon as something ends, such as a pause,
// a limit, or another host. Their nodes may go meanwhile.
func WaitedAfter(s Snapshot, d Decision) map[string]time.Time {
	waited := map[string]time.Time{}
	for i := range d.Verdicts {
		switch v := &d.Verdicts[i]; {
		case v.Reason == metal3v1.WaitingForReading || v.Reason == metal3v1.WaitingForPorts || v.Reason == metal3v1.WaitingForInventory:
		case v.Reason != metal3v1.WaitingForCreation && (v.Reason != metal3v1.WaitingForNode || s.Frozen):
			waited[v.Node] = s.Looked
		default: // it may be asked for
			if at, before := s.Waited[v.Node]; before {
				waited[v.Node] = at
			}
		}
	}
	return waited
}

// naming is what the name of a machine can be made of.
func (p *planner) naming(m *Machine, v Verdict, facts Facts) naming {
	n := naming{report: m.Report, bootMAC: v.BootMAC, node: m.Node.UUID}
	switch t := p.self.Named; {
	case t == nil: // a detail names the host, also where the expression cannot be evaluated
	case t.Counts:
		n.expression = p.counted(t, facts)
	default:
		n.expression, _ = t.Value(facts)
	}
	return n
}

// counted gives the value of a name with the first counter that makes it free. Names that differ in nothing but the counter are tried from where
// the last one was found.
func (p *planner) counted(t *Text, facts Facts) string {
	with := maps.Clone(facts)
	with[counter] = 0
	series, err := t.Value(with)
	if err != nil {
		return ""
	}
	if p.counters == nil {
		p.counters = map[string]int{}
	}
	for range len(p.Hosts) + len(p.Machines) + 1 {
		p.counters[series]++
		with[counter] = p.counters[series]
		value, err := t.Value(with)
		if err != nil {
			return ""
		}
		name := LegalName(p.self.Template.Prefix + value + p.self.Template.Suffix)
		if p.index.find(byName, p.self.Namespace+"~"+name) == nil {
			return value
		}
	}
	return ""
}

// fetch asks for the report of a machine. One of which Ironic has answered that there is none takes no place: most often that is asked again already.
func (p *planner) fetch(m *Machine) {
	if !m.Read() {
		if p.fetched+p.ready >= fetchSize {
			return
		}
		p.fetched++
	}
	p.Actions = append(p.Actions, FetchReport{Node: m.Node.UUID})
}

func (p *planner) drop(m *Machine) {
	if m.Report != nil {
		p.Actions = append(p.Actions, DropReport{Node: m.Node.UUID})
	}
}

func (p *planner) report(v Verdict) {
	v.Message = Sentence(v.Message)
	if v.Waiting {
		p.Counts.Waiting++
	} else {
		p.Counts.Refused++
	}
	p.Verdicts = append(p.Verdicts, v)
}

// Sentence makes a message a sentence.
func Sentence(s string) string {
	if s = strings.TrimRight(s, ". "); s == "" {
		return ""
	}
	return strings.ToUpper(s[:1]) + s[1:] + "."
}

func (p *planner) wake(after time.Duration) {
	if after > 0 && (p.RequeueAfter == 0 || after < p.RequeueAfter) {
		p.RequeueAfter = after
	}
}
