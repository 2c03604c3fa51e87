// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package hoststate

import (
	"encoding/json"
	"slices"
	"strings"

	metal3v1 "github.com/muster-io/muster/apis/metal3/v1alpha1"
)

// PowerWish is what a host says about its power.
type PowerWish struct {
	// On says that the machine shall have power.
	On bool
	// Reboots are the reboot annotations, in order; Once says that the one without a key is among them, which is removed when it is done.
	Reboots []string
	Once    bool
	// Hard says that the machine need not be asked to shut down.
	Hard bool
	// KeepOn says that the machine is never switched off, only rebooted.
	KeepOn bool
}

// WishOf reads what a host says about its power.
func WishOf(h *metal3v1.BareMetalHost) PowerWish {
	w := PowerWish{On: h.Spec.Online, KeepOn: h.Spec.DisablePowerOff}
	for key, value := range h.Annotations {
		if key != metal3v1.RebootAnnotation && !strings.HasPrefix(key, metal3v1.RebootAnnotation+"/") {
			continue
		}
		w.Reboots = append(w.Reboots, key)
		w.Once = w.Once || key == metal3v1.RebootAnnotation
		var mode struct {
			Mode string `json:"mode"`
		}
		if json.Unmarshal([]byte(value), &mode) == nil && mode.Mode == "hard" {
			w.Hard = true
		}
	}
	slices.Sort(w.Reboots)
	return w
}

// PowerStep is the next step towards what a host says about its power.
type PowerStep struct {
	// Ask is what to ask of Ironic, empty for nothing.
	Ask string
	// Rebooted says that the reboot without a key is done, once what is asked is asked, and its annotation can go.
	Rebooted bool
	// Wait says that Ironic is at it.
	Wait bool
	// Failed says that Ironic could not do what was asked last: see the node's last error.
	Failed bool
}

// Power compares a node with what its host says. asked is what was asked of Ironic last, as far as this process remembers.
func Power(n Node, w PowerWish, asked string) PowerStep {
	on := w.On && len(w.Reboots) == 0
	off := SoftDown
	if w.Hard {
		off = PowerDown
	}
	if w.KeepOn {
		// A host that has to be off for as long as an annotation stays cannot be, so only the reboot without a key is done.
		on = w.On || n.Power == PowerOn
	}
	switch {
	case n.Busy():
		return PowerStep{Wait: true}
	case w.KeepOn && w.Once && n.Power == PowerOn:
		ask := SoftRestart
		if w.Hard {
			ask = Rebooting
		}
		return PowerStep{Ask: ask, Rebooted: true}
	case w.Once && n.Power == PowerDown:
		return PowerStep{Rebooted: true}
	case on == (n.Power == PowerOn) && n.Power != "":
		return PowerStep{}
	case on && asked == PowerOn && n.LastError != "", !on && asked == PowerDown && n.LastError != "":
		return PowerStep{Failed: true}
	case on:
		return PowerStep{Ask: PowerOn}
	case asked == SoftDown && n.LastError != "": // a system that does not listen is switched off
		return PowerStep{Ask: PowerDown}
	case asked == PowerDown:
		return PowerStep{Ask: PowerDown}
	default:
		return PowerStep{Ask: off}
	}
}
