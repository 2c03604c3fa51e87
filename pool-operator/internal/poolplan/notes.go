// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package poolplan

import (
	"fmt"
	"slices"
	"strings"
	"time"

	hivev1 "github.com/muster-io/muster/apis/hive/v1"
	"github.com/muster-io/muster/pool-operator/internal/poolview"
)

// slowInstallation is after what time the message of a pool names a cluster that is still being installed.
const slowInstallation = time.Hour

// mostNamed is how many clusters a sentence names.
const mostNamed = 5

// notes name what the pool waits for, one sentence each.
func (r report) notes() []string {
	return slices.Concat(r.noteKept(), r.noteWithheld(), r.noteBudget(), r.noteSlow(), r.noteRestored(), r.noteUnreadable())
}

// countKept counts the unclaimed clusters that should be deleted and are protected from it.
func (r report) countKept() int {
	n := 0
	for _, m := range r.distinctKept() {
		if m.unclaimed() {
			n++
		}
	}
	return n
}

// distinctKept are the clusters that should be deleted and may not be, each once.
func (r report) distinctKept() []member {
	var out []member
	for _, m := range r.kept {
		if !slices.ContainsFunc(out, func(o member) bool { return o.Namespace == m.Namespace }) {
			out = append(out, m)
		}
	}
	return out
}

func (r report) noteKept() []string {
	protected, paused := []string{}, []string{}
	for _, m := range r.distinctKept() {
		if m.Protected {
			protected = append(protected, m.Name)
		} else {
			paused = append(paused, m.Name)
		}
	}
	var out []string
	for _, kept := range []struct {
		names      []string
		annotation string
	}{{protected, hivev1.AnnotationProtectedDelete}, {paused, hivev1.AnnotationReconcilePause}} {
		if len(kept.names) > 0 {
			out = append(out, "to be deleted, but kept by the annotation "+kept.annotation+": "+list(kept.names))
		}
	}
	return out
}

// noteWithheld names clusters that count as unclaimed, and that claims do not get.
func (r report) noteWithheld() []string {
	var names []string
	for _, m := range r.fleet.members {
		if m.state == withheld {
			names = append(names, m.Name)
		}
	}
	if len(names) == 0 {
		return nil
	}
	return []string{"given to no claim because of the annotation " + hivev1.AnnotationReconcilePause + ": " + list(names)}
}

// noteBudget names what uses up maxConcurrent while something else has to wait for it.
func (r report) noteBudget() []string {
	if !r.refusedByBudget || r.quota.budget() > 0 || r.quota.frozen() {
		return nil
	}
	var busy []string
	for _, m := range r.fleet.members {
		switch m.state {
		case installing:
			busy = append(busy, m.Name+" (installing)")
		case deleting:
			busy = append(busy, m.Name+" (deleting)")
		case standby, ready, withheld, broken, claimed, released:
		}
	}
	return []string{fmt.Sprintf("maxConcurrent of %d is used up by %s", *r.spec.MaxConcurrent, list(busy))}
}

// noteSlow names clusters whose installation takes unusually long and has no time-out.
func (r report) noteSlow() []string {
	var slow []string
	for _, m := range r.fleet.members {
		if m.state != installing || m.planned || poolview.LimitsOf(&r.spec).Install > 0 {
			continue
		}
		if due := m.InstallingSince().Add(slowInstallation); r.now.Before(due) {
			r.wakeAt(due)
			continue
		}
		slow = append(slow, m.Name)
	}
	if len(slow) == 0 {
		return nil
	}
	return []string{fmt.Sprintf("installing for more than %s: %s; set installTimeout to have such clusters replaced", strings.TrimSuffix(slowInstallation.String(), "0m0s"), list(slow))}
}

// noteRestored names clusters that wait for the claim that they had before they were restored from a backup.
func (r report) noteRestored() []string {
	claims := map[string]bool{}
	for _, c := range r.in.Claims {
		claims[c.Name] = true
	}
	var waiting []string
	for _, m := range r.fleet.members {
		if m.Restored && m.Claimed() && !m.Deleting && !claims[m.ClaimName] {
			waiting = append(waiting, fmt.Sprintf("%s (claim %s)", m.Name, m.ClaimName))
		}
	}
	if len(waiting) == 0 {
		return nil
	}
	return []string{fmt.Sprintf("restored, and kept for a claim that is not there: %s; restore the claim, or remove the label %s to have the cluster deleted",
		list(waiting), hivev1.LabelDisableCreationCheck)}
}

// noteUnreadable reports annotations whose value is no boolean.
func (r report) noteUnreadable() []string {
	out := slices.Clone(poolview.Unreadable(r.pool.Annotations))
	for _, m := range r.fleet.members {
		if m.Unreadable != "" && len(out) < mostNamed {
			out = append(out, m.Name+": "+strings.ReplaceAll(m.Unreadable, "\n", "; "))
		}
	}
	return out
}

// list joins names, the first few of them.
func list(names []string) string {
	slices.Sort(names)
	if len(names) <= mostNamed {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:mostNamed], ", "), len(names)-mostNamed)
}
