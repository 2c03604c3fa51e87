// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package hoststate

import "time"

// Examination is what the next step of an inspection rests on, beside the node.
type Examination struct {
	// Again says that the hardware is known and a user asked for a new inspection: only an inspection that ended after Since will do.
	Again bool
	Since time.Time
	// Asked is what this process asked for, and Before what Reported of the node was then.
	Asked  Asked
	Before time.Time
	// Told says that the host says already that an inspection failed.
	Told bool
}

// Inspection says what is next for a node whose machine is to be inspected. Ironic's and our clocks may differ: what this process has
// seen under way counts in any case, so that a difference costs one more inspection at worst, and only when the process ended meanwhile. An inspection that
// ended before it was asked for never counts: Ironic takes the end of ironic-inspector's last inspection for that of the next, until that has begun.
func Inspection(n Node, e Examination) Move {
	done := !n.Inspected.IsZero() && (e.Asked == AskedInspect || !n.Inspected.Before(e.Since))
	switch {
	case n.Busy():
		return Await
	case n.State == InspectFailed && (e.Asked == AskedInspect || !e.Told):
		return Refuse
	case n.State == InspectFailed:
		return Inspect
	case e.Asked == AskedInspect && !n.Inspected.IsZero() && n.Inspected.Equal(e.Before):
		return Await
	case !e.Again || done:
		return Accept
	case e.Asked == AskedInspect:
		return Refuse
	default:
		return Inspect
	}
}

// Leave is the next step that leads a node out of an inspection that is not wanted any more: what to ask of Ironic, empty for nothing, or
// whether to wait. Ironic neither deletes a node in an inspection nor one whose inspection failed.
func Leave(n Node) (ask string, wait bool) {
	switch n.State {
	case InspectWait:
		return "abort", true
	case InspectFailed:
		return "manage", true
	default:
		return "", n.State == Inspects
	}
}
