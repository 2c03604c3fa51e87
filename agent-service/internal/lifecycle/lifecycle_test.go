// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package lifecycle_test

import (
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/muster-io/muster/agent-service/internal/lifecycle"
)

var update = flag.Bool("update", false, "write the page about states again")

func TestThePageShowsTheTable(t *testing.T) {
	path := filepath.Join("..", "..", "..", "docs", "spec", "host-lifecycle.md")
	if *update {
		require.NoError(t, os.WriteFile(path, []byte(lifecycle.Document()), 0o600))
	}
	page, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.Equal(t, string(page), lifecycle.Document(), "run go test ./internal/lifecycle -update")
}

func TestEveryVerbHasAnAnswerInEveryState(t *testing.T) {
	facts := lifecycle.AllFacts()
	for _, s := range lifecycle.States {
		for _, v := range lifecycle.Verbs {
			for _, f := range facts {
				o := lifecycle.Apply(s, v, f)
				switch {
				case !slices.Contains(lifecycle.States, o.To):
					require.Fail(t, "no such state", "%s in %s", v, s)
				case o.Refusal != "" && (o.To != s || o.Info == ""):
					require.Fail(t, "a refusal changes nothing and says why", "%s in %s", v, s)
				case o.To != s && o.Info == "":
					require.Fail(t, "a change says what the host waits for", "%s in %s", v, s)
				}
			}
		}
	}
}

func TestEventsOfMachinesAndTheServiceAreNeverErrors(t *testing.T) {
	for _, s := range lifecycle.States {
		for _, v := range []lifecycle.Verb{lifecycle.Refresh, lifecycle.TimeOut, lifecycle.Supersede, lifecycle.LoseMedia, lifecycle.Fail} {
			for _, f := range lifecycle.AllFacts() {
				if o := lifecycle.Apply(s, v, f); o.Refusal != "" {
					require.Fail(t, "not requested", "%s in %s", v, s)
				}
			}
		}
	}
}

// TestEveryStateHasATimeOutOrAWayOutForTheUser, whatever the facts are: a verb that leaves the host where it is leads nowhere, and to delete it is no way on.
func TestEveryStateHasATimeOutOrAWayOutForTheUser(t *testing.T) {
	leads := func(s lifecycle.State, v lifecycle.Verb, f lifecycle.Facts) bool {
		o := lifecycle.Apply(s, v, f)
		return o.Refusal == "" && o.To != s
	}
	for _, s := range lifecycle.States {
		_, limited := lifecycle.TimeOuts[s]
		for _, f := range lifecycle.AllFacts() {
			if limited {
				require.True(t, leads(s, lifecycle.TimeOut, f), "%s has a time-out that does nothing: %+v", s, f)
				continue
			}
			out := leads(s, lifecycle.Cancel, f)
			// The user boots the discovery image, and cancels the installation of the cluster.
			f.SameBoot, f.ClusterPreparing, f.ClusterInstalling = false, false, false
			f.Unreleased = false // the machine wipes itself, or the user does
			out = out || leads(s, lifecycle.Bind, f) || leads(s, lifecycle.Unbind, f) || leads(s, lifecycle.Reset, f) || leads(s, lifecycle.Register, f)
			require.True(t, out, "%s: %+v", s, f)
		}
	}
}

func TestEveryRuleIsReached(t *testing.T) {
	facts := lifecycle.AllFacts()
	for i, r := range lifecycle.Rules {
		reached := false
		for _, s := range r.From {
			for _, f := range facts {
				first := slices.IndexFunc(lifecycle.Rules, func(other lifecycle.Rule) bool {
					return other.Verb == r.Verb && slices.Contains(other.From, s) && (other.If == nil || other.If.Holds(f))
				})
				if reached = first == i; reached {
					break
				}
			}
			if reached {
				break
			}
		}
		assert.True(t, reached, "%s in %v", r.Verb, r.From)
	}
}

func TestBindingAndLeavingFollowTheState(t *testing.T) {
	for _, s := range lifecycle.States {
		for _, v := range lifecycle.Verbs {
			for _, f := range lifecycle.AllFacts() {
				o := lifecycle.Apply(s, v, f)
				if o.Refusal != "" {
					continue
				}
				free, then := lifecycle.Unbound(s), lifecycle.Unbound(o.To)
				joins, leaves := o.Has(lifecycle.JoinCluster), o.Has(lifecycle.LeaveCluster)
				wantJoin, wantLeave := free && !then, !free && then
				if !free && !then {
					wantJoin, wantLeave = leaves, joins // both or none
				}
				if joins != wantJoin || leaves != wantLeave {
					require.Fail(t, "the cluster does not follow the state", "%s in %s to %s", v, s, o.To)
				}
				if lifecycle.Busy(s) && slices.Contains([]lifecycle.Verb{lifecycle.Bind, lifecycle.Unbind, lifecycle.Move, lifecycle.Edit, lifecycle.Delete}, v) {
					require.Fail(t, "an installation goes on undisturbed", "%s in %s", v, s)
				}
			}
		}
	}
}

// TestARegistrationInTheSameBootIsNoBoot: an agent that starts again, or whose token ended, says nothing new of its machine.
func TestARegistrationInTheSameBootIsNoBoot(t *testing.T) {
	for _, s := range lifecycle.States {
		for _, f := range lifecycle.AllFacts() {
			f.SameBoot = true
			o := lifecycle.Apply(s, lifecycle.Register, f)
			if o.Has(lifecycle.ForgetDiscovery) || lifecycle.MustBoot(s) && f.Rebooted && o.To != s {
				require.Fail(t, "a host becomes another one", "%s to %s: %+v", s, o.To, f)
			}
		}
	}
}

// TestTokensEndWithABinding, with what begins anew, and with nothing else that users or machines do.
func TestTokensEndWithABinding(t *testing.T) {
	for _, s := range lifecycle.States {
		for _, v := range lifecycle.Verbs {
			for _, f := range lifecycle.AllFacts() {
				o := lifecycle.Apply(s, v, f)
				mustBoot := o.To == lifecycle.UnbindingPendingUserAction || o.To == lifecycle.ResettingPendingUserAction
				want := o.Has(lifecycle.LeaveCluster) && o.To != lifecycle.Reclaiming || o.Has(lifecycle.ForgetDiscovery) || mustBoot && o.To != s
				if o.Has(lifecycle.EndTokens) != want {
					require.Fail(t, "tokens", "%s in %s to %s", v, s, o.To)
				}
			}
		}
	}
}

// notHere are states of assisted-service that nothing leads to here.
var notHere = []string{"disabled", "disabled-unbound", "resetting", "pending-for-input"}

func TestStatesOfAssistedServiceAreKnown(t *testing.T) {
	content, err := os.ReadFile(filepath.Join("testdata", "assisted_states.txt"))
	require.NoError(t, err)
	for name := range strings.FieldsSeq(string(content)) {
		if !slices.Contains(notHere, name) {
			assert.Contains(t, lifecycle.States, lifecycle.State(name))
		}
	}
}

func TestClustersFollowTheirHosts(t *testing.T) {
	for _, c := range []struct {
		name string
		from lifecycle.ClusterState
		r    lifecycle.Roster
		want lifecycle.ClusterState
	}{
		{"too few hosts", lifecycle.ClusterReady, lifecycle.Roster{Wanted: 3, Ready: 2}, lifecycle.ClusterInsufficient},
		{"enough hosts", lifecycle.ClusterInsufficient, lifecycle.Roster{Wanted: 3, Ready: 3}, lifecycle.ClusterReady},
		{"checks run", lifecycle.ClusterPreparing, lifecycle.Roster{Wanted: 2, Installing: 2, Prepared: 1}, lifecycle.ClusterPreparing},
		{"checks passed", lifecycle.ClusterPreparing, lifecycle.Roster{Wanted: 2, Installing: 2, Prepared: 2}, lifecycle.ClusterInstalling},
		{"a check failed", lifecycle.ClusterPreparing, lifecycle.Roster{Wanted: 2, Installing: 1, Unprepared: 1}, lifecycle.ClusterInsufficient},
		{"a host was lost before the installation", lifecycle.ClusterPreparing, lifecycle.Roster{Wanted: 2, Installing: 1, Prepared: 1}, lifecycle.ClusterInsufficient},
		{"the first host is done", lifecycle.ClusterInstalling, lifecycle.Roster{Wanted: 2, Installing: 2, Done: 1}, lifecycle.ClusterFinalizing},
		{"all hosts are done", lifecycle.ClusterFinalizing, lifecycle.Roster{Wanted: 2, Installing: 2, Done: 2}, lifecycle.ClusterInstalled},
		{"a host is no Ready node yet", lifecycle.ClusterFinalizing, lifecycle.Roster{Wanted: 2, Installing: 2, Done: 2, Unjoined: 1}, lifecycle.ClusterFinalizing},
		{"a host failed", lifecycle.ClusterInstalling, lifecycle.Roster{Wanted: 2, Installing: 2, Failed: 1}, lifecycle.ClusterFailed},
		{"an installed cluster stays", lifecycle.ClusterInstalled, lifecycle.Roster{}, lifecycle.ClusterInstalled},
		{"a cancelled cluster stays", lifecycle.ClusterCancelled, lifecycle.Roster{Wanted: 1, Ready: 1}, lifecycle.ClusterCancelled},
	} {
		got, _ := lifecycle.NextCluster(c.from, c.r)
		assert.Equal(t, c.want, got, c.name)
	}
}
