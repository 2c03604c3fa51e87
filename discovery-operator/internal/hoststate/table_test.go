// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package hoststate_test

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	metal3v1 "github.com/muster-io/muster/apis/metal3/v1alpha1"
	"github.com/muster-io/muster/discovery-operator/internal/hoststate"
)

var update = flag.Bool("update", false, "draw the diagram in docs/spec anew")

func TestEveryEventHasAnAnswerInEveryState(t *testing.T) {
	known := map[hoststate.State]bool{hoststate.Gone: true}
	for _, s := range hoststate.States() {
		known[s] = true
	}
	for _, s := range hoststate.States() {
		for _, e := range hoststate.Events() {
			step, ok := hoststate.Next(s, e)
			require.True(t, ok, "%q has no answer to %q", s, e)
			assert.True(t, known[step.To], "%q leads to %q, which is no state", s, step.To)
			assert.NotEmpty(t, step.Why, "%q does not say why %q leads to %q", s, e, step.To)
			assert.True(t, step.To == s || step.Do == hoststate.Rest, "%q does something on its way to %q: a state is written before its effects", s, step.To)
		}
	}
	_, ok := hoststate.Next(hoststate.Gone, hoststate.Nothing)
	assert.False(t, ok, "after the end there is nothing")
}

func TestEveryStateHasAnExit(t *testing.T) {
	for _, s := range hoststate.States() {
		exits := 0
		for _, e := range hoststate.Events() {
			if step, _ := hoststate.Next(s, e); step.To != s {
				exits++
			}
		}
		assert.Positive(t, exits, "%q has no exit", s)
	}
}

// TestDeletionWorksInEveryState requests deletion in every state, and lets every effect do its work: the host is gone after a few steps.
func TestDeletionWorksInEveryState(t *testing.T) {
	for _, s := range hoststate.States() {
		for name, outcomes := range map[string][]hoststate.Event{
			"all goes well":                           {hoststate.Done},
			"the node is gone":                        {hoststate.NodeLost},
			"all attempts fail, then one may succeed": {hoststate.Failed, hoststate.GaveUp, hoststate.Done},
		} {
			at, steps := s, 0
			for ; at != hoststate.Gone && steps < 20; steps++ {
				event := hoststate.EventOf(at, hoststate.Facts{Deleting: true, PowerControl: true, Unapproved: true, Unverified: true, External: true})
				require.Equal(t, hoststate.DeletionRequested, event)
				step, _ := hoststate.Next(at, event)
				if step.Do != hoststate.Rest {
					step, _ = hoststate.Next(at, outcomes[steps%len(outcomes)])
				}
				at = step.To
			}
			assert.Equal(t, hoststate.Gone, at, "from %q, when %s", s, name)
		}
	}
}

// TestEverythingThatCanBeSeenLeadsSomewhere walks from every state with every combination of facts, while every effect that can succeed does: a host that is
// not deleted comes to rest where its facts say, and never jumps to and fro.
func TestEverythingThatCanBeSeenLeadsSomewhere(t *testing.T) {
	succeeds := map[hoststate.Effect]hoststate.Event{
		hoststate.FindNode: hoststate.NodeFound, hoststate.ImportHardware: hoststate.HardwareKnown, hoststate.InspectMachine: hoststate.HardwareKnown,
		hoststate.EndInspection: hoststate.Done,
		hoststate.MaintainPower: hoststate.Nothing, hoststate.Deploy: hoststate.Done, hoststate.Undeploy: hoststate.Done,
		hoststate.PowerOff: hoststate.Done, hoststate.DeleteNode: hoststate.Done, hoststate.KeepDeployed: hoststate.Nothing,
	}
	for _, s := range hoststate.States() {
		for bits := range 1 << 6 {
			f := hoststate.Facts{
				Reinspect:  bits&32 != 0,
				Unapproved: bits&1 != 0, PowerControl: bits&2 != 0, External: bits&4 != 0, NeedsInspection: bits&8 != 0, NodeKnown: bits&16 != 0,
			}
			f.Unverified = f.PowerControl
			at, still := s, 0
			for range 30 {
				event := hoststate.EventOf(at, f)
				step, _ := hoststate.Next(at, event)
				if step.To == at && step.Do != hoststate.Rest {
					outcome := succeeds[step.Do]
					if step.Do == hoststate.Register {
						f.Unverified, f.NodeKnown = false, true
						outcome = hoststate.AfterVerification(f)
					}
					if outcome == hoststate.HardwareKnown {
						f.NeedsInspection, f.Reinspect = false, false
					}
					step, _ = hoststate.Next(at, outcome)
				}
				if still++; step.To != at {
					still = 0
				}
				at = step.To
			}
			assert.GreaterOrEqual(t, still, 5, "from %q with %+v the host never comes to rest", s, f)
			switch {
			case s == hoststate.Provisioned || s == hoststate.Provisioning:
				assert.Equal(t, hoststate.Provisioned, at, "%+v", f)
			case f.Unapproved && (s == hoststate.None || s == hoststate.Discovered):
				assert.Equal(t, hoststate.Discovered, at, "%+v", f)
			case f.External:
				assert.Contains(t, []hoststate.State{hoststate.ExternallyProvisioned, hoststate.Discovered}, at, "from %q with %+v", s, f)
			default:
				assert.Contains(t, []hoststate.State{hoststate.Available, hoststate.Discovered}, at, "from %q with %+v", s, f)
			}
			if !f.Unapproved {
				assert.NotEqual(t, hoststate.Discovered, at, "from %q with %+v: nothing holds the host", s, f)
			}
		}
	}
}

func TestADiscoveredHostWhoseHardwareIsKnownIsNotInspected(t *testing.T) {
	h := &metal3v1.BareMetalHost{}
	h.Status.HardwareDetails = &metal3v1.HardwareDetails{}
	var path []hoststate.State
	for at := hoststate.Discovered; at != hoststate.Available && len(path) < 10; {
		step, _ := hoststate.Next(at, hoststate.EventOf(at, hoststate.FactsOf(h)))
		at = step.To
		path = append(path, at)
	}
	assert.Equal(t, []hoststate.State{hoststate.MatchProfile, hoststate.Available}, path)

	h.Spec.ExternallyProvisioned = true
	assert.Equal(t, hoststate.ExternallyInstalled, hoststate.EventOf(hoststate.Discovered, hoststate.FactsOf(h)))
	h.Spec.ExternallyProvisioned, h.Status.HardwareDetails = false, nil
	h.Status.Provisioning.ID = "node"
	assert.Equal(t, hoststate.HardwareWanted, hoststate.EventOf(hoststate.Discovered, hoststate.FactsOf(h)))
	h.Spec.BMC = &metal3v1.BMCDetails{Address: "redfish://192.0.2.1", CredentialsName: "x"}
	f := hoststate.FactsOf(h)
	f.Unverified = true
	assert.Equal(t, hoststate.CredentialsArrived, hoststate.EventOf(hoststate.Discovered, f), "credentials are always verified")
}

func TestStatesOfOthersAreRead(t *testing.T) {
	assert.Equal(t, hoststate.Discovered, hoststate.Of(metal3v1.StateUnmanaged))
	assert.Equal(t, hoststate.Discovered, hoststate.Of(metal3v1.StateDiscovered))
	assert.Equal(t, hoststate.Available, hoststate.Of(metal3v1.StateReady))
	assert.Equal(t, hoststate.None, hoststate.Of("a state of tomorrow"), "an unknown state begins anew")
}

// TestTheDiagramIsDrawn compares the diagram in the docs with the machine; go test ./internal/hoststate -update draws it anew.
func TestTheDiagramIsDrawn(t *testing.T) {
	file := filepath.Join("..", "..", "..", "docs", "spec", "baremetalhost.md")
	data, err := os.ReadFile(file)
	require.NoError(t, err)
	const begin, end = "<!-- drawn by hoststate -->\n", "<!-- end of what hoststate draws -->\n"
	head, rest, found := strings.Cut(string(data), begin)
	require.True(t, found, "%s has no place for the diagram", file)
	_, tail, found := strings.Cut(rest, end)
	require.True(t, found, "%s has no place for the diagram", file)
	want := head + begin + hoststate.Diagram() + "\n" + hoststate.Activities() + end + tail
	if *update {
		require.NoError(t, os.WriteFile(file, []byte(want), 0o644))
		return
	}
	assert.Equal(t, want, string(data), "draw it anew: go test ./internal/hoststate -update")
}
