// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"fmt"
	"slices"
	"strings"
	"sync"
)

// Document is the page about the states of hosts, written from the table.
func Document() string {
	var b strings.Builder
	b.WriteString("# Life of a host\n\nThis page is written from the table in `agent-service/internal/lifecycle`; `go test ./internal/lifecycle -update` writes it again.\n")
	b.WriteString("REST and custom resources show the same states. For each verb the first line that fits counts; a verb without a line for a state is refused with `StateNotAllowed`.\n")
	b.WriteString("\n## Diagrams\nOne diagram per phase, changes of state only. A state of another phase is drawn as that phase. `refresh` is what the service does when it learns something: a poll, silence, an inventory, a change in the cluster.\n")
	for _, p := range phases {
		fmt.Fprintf(&b, "\n### %s\n%s\n\n```mermaid\nstateDiagram-v2\n", p.title, p.text)
		for _, edge := range p.edges() {
			b.WriteString("  " + edge + "\n")
		}
		b.WriteString("```\n")
	}
	b.WriteString("\n## Time-outs\n| State | After | Then |\n|---|---|---|\n")
	for _, s := range States {
		limit, limited := TimeOuts[s]
		if !limited {
			continue
		}
		then := string(Apply(s, TimeOut, Facts{}).To)
		if late := string(Apply(s, TimeOut, Facts{Rebooted: true}).To); late != then {
			then += ", after the reboot " + late
		}
		fmt.Fprintf(&b, "| %s | %s | %s |\n", s, limit, then)
	}
	b.WriteString("\nSilence is not in this table: a host that did not poll for 3 minutes (`--disconnect-after`) is refreshed as not connected.\n")
	b.WriteString("\n## Rules\n| Verb | From | If | To | Beside it, or why not |\n|---|---|---|---|---|\n")
	for _, r := range Rules {
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s |\n", r.Verb, names(r.From), condition(r.If), target(r), remarks(r))
	}
	b.WriteString("\n## Ways out\n| State | By time | By a user | By the machine |\n|---|---|---|---|\n")
	for _, s := range States {
		limit := ""
		if d, limited := TimeOuts[s]; limited {
			limit = d.String()
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", s, limit, verbs(s, Verbs[:10]), verbs(s, Verbs[10:16]))
	}
	return b.String()
}

// phase is a part of the life of a host that has a diagram of its own.
type phase struct {
	title, text string
	states      []State
}

// phases hold every state once.
var phases = []phase{
	{"Free", "The host belongs to no cluster.", []State{DiscoveringUnbound, InsufficientUnbound, KnownUnbound, DisconnectedUnbound}},
	{"Bound", "The host belongs to a cluster and is not being installed.", []State{
		Binding, Discovering, Insufficient, Known, Disconnected, PreparingForInstallation, PreparingSuccessful, PreparingFailed, Unbinding,
	}},
	{"Installation and release", "The host is installed, serves its cluster, and returns.", []State{
		Installing, InstallingInProgress, InstallingPendingUserAction, Installed, AddedToExistingCluster, Failed, Cancelled,
		ResettingPendingUserAction, UnbindingPendingUserAction, Reclaiming, ReclaimingRebooting,
	}},
}

// edges are the changes from a state of the phase, the verbs of one change in one line.
func (p phase) edges() []string {
	type change struct{ from, to string }
	var order []change
	labels := map[change][]string{}
	for _, r := range Rules {
		if r.To == "" || r.Refusal != "" {
			continue
		}
		for _, from := range r.From {
			if from == r.To || !slices.Contains(p.states, from) {
				continue
			}
			c := change{node(from), p.node(r.To)}
			if labels[c] == nil {
				order = append(order, c)
			}
			if !slices.Contains(labels[c], string(r.Verb)) {
				labels[c] = append(labels[c], string(r.Verb))
			}
		}
	}
	var list []string
	for _, c := range order {
		list = append(list, fmt.Sprintf("%s --> %s: %s", c.from, c.to, strings.Join(labels[c], ", ")))
	}
	slices.Sort(list)
	return list
}

// node is the state, or the phase that the state belongs to.
func (p phase) node(s State) string {
	for _, other := range phases {
		if other.title != p.title && slices.Contains(other.states, s) {
			return strings.ReplaceAll(other.title, " ", "_")
		}
	}
	return node(s)
}

// node is a name that diagrams allow.
func node(s State) string { return strings.ReplaceAll(string(s), "-", "_") }

func names(states []State) string {
	if len(states) == len(States) {
		return "every other"
	}
	var list []string
	for _, s := range states {
		list = append(list, string(s))
	}
	return strings.Join(list, ", ")
}

func condition(c *Condition) string {
	if c == nil {
		return ""
	}
	return c.Name
}

func target(r Rule) string {
	switch {
	case r.Refusal != "":
		return "refused"
	case r.To == "":
		return "same"
	}
	return string(r.To)
}

func remarks(r Rule) string {
	if r.Refusal != "" {
		return "`" + r.Refusal + "`: " + r.Info
	}
	var list []string
	for _, e := range r.Effects {
		list = append(list, string(e))
	}
	return strings.Join(list, ", ")
}

// verbs are those of the list that lead out of a state under some facts.
func verbs(s State, list []Verb) string {
	var out []string
	for _, v := range list {
		if v != Edit && leaves(s, v) {
			out = append(out, string(v))
		}
	}
	return strings.Join(out, ", ")
}

// leaves is true where a verb leads out of a state under some facts, or ends the host.
func leaves(s State, v Verb) bool {
	for _, f := range AllFacts() {
		if o := Apply(s, v, f); o.Refusal == "" && (o.To != s || v == Delete) {
			return true
		}
	}
	return false
}

// AllFacts are all facts that conditions can tell apart. Resident and Unreleased share a bit, and so do Prepared and Assisted: no state has rules about both. They are made once, and not to be changed.
var AllFacts = sync.OnceValue(func() []Facts {
	var all []Facts
	for bits := range 1 << 12 {
		on := func(i int) bool { return bits&(1<<i) != 0 }
		for _, stage := range []Stage{"", StageWriting, StageDone, StageFailed} {
			for _, attempts := range []int{0, MostAttempts} {
				all = append(all, Facts{
					Connected: on(0), HasInventory: on(1), Sufficient: on(2), Prepared: on(3), Unprepared: on(4), ClusterPreparing: on(5), ClusterInstalling: on(6),
					ClusterFailed: on(7), DayTwo: on(8), Rebooted: on(9), SameBoot: on(10), Resident: on(11), Unreleased: on(11), Assisted: on(3), Stage: stage, Attempts: attempts,
				})
			}
		}
	}
	return all
})

// MustBoot is true for states that end only when the machine boots the discovery image again.
func MustBoot(s State) bool {
	return s == UnbindingPendingUserAction || s == ResettingPendingUserAction || s == InstallingPendingUserAction
}
