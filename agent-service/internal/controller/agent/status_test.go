// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-io/muster/agent-service/internal/domain"
	"github.com/muster-io/muster/agent-service/internal/hardware"
	"github.com/muster-io/muster/agent-service/internal/lifecycle"
	"github.com/muster-io/muster/agent-service/internal/validate"
	agentv1 "github.com/muster-io/muster/apis/agentinstall/v1beta1"
)

// reasons of Connected, RequirementsMet, Validated, Installed and Bound in each state, for a host that is approved and valid.
var reasons = map[lifecycle.State]string{
	lifecycle.DiscoveringUnbound:          "AgentIsConnected AgentNotReady ValidationsPassing InstallationNotStarted Unbound",
	lifecycle.InsufficientUnbound:         "AgentIsConnected AgentNotReady ValidationsPassing InstallationNotStarted Unbound",
	lifecycle.KnownUnbound:                "AgentIsConnected AgentIsReady ValidationsPassing InstallationNotStarted Unbound",
	lifecycle.DisconnectedUnbound:         "AgentIsDisconnected AgentNotReady ValidationsPassing InstallationNotStarted Unbound",
	lifecycle.Binding:                     "AgentIsDisconnected Binding Binding Binding Binding",
	lifecycle.Discovering:                 "AgentIsConnected AgentNotReady ValidationsPassing InstallationNotStarted Bound",
	lifecycle.Insufficient:                "AgentIsConnected AgentNotReady ValidationsPassing InstallationNotStarted Bound",
	lifecycle.Known:                       "AgentIsConnected AgentIsReady ValidationsPassing InstallationNotStarted Bound",
	lifecycle.Disconnected:                "AgentIsDisconnected AgentNotReady ValidationsPassing InstallationNotStarted Bound",
	lifecycle.PreparingForInstallation:    "AgentIsConnected AgentAlreadyInstalling ValidationsPassing InstallationInProgress Bound",
	lifecycle.PreparingSuccessful:         "AgentIsConnected AgentAlreadyInstalling ValidationsPassing InstallationInProgress Bound",
	lifecycle.PreparingFailed:             "AgentIsConnected AgentNotReady ValidationsPassing InstallationNotStarted Bound",
	lifecycle.Installing:                  "AgentIsConnected AgentAlreadyInstalling ValidationsPassing InstallationInProgress Bound",
	lifecycle.InstallingInProgress:        "AgentIsConnected AgentAlreadyInstalling ValidationsPassing InstallationInProgress Bound",
	lifecycle.InstallingPendingUserAction: "AgentIsConnected AgentAlreadyInstalling ValidationsPassing InstallationInProgress Bound",
	lifecycle.Installed:                   "AgentIsConnected AgentInstallationStopped ValidationsPassing InstallationCompleted Bound",
	lifecycle.AddedToExistingCluster:      "AgentIsConnected AgentInstallationStopped ValidationsPassing InstallationCompleted Bound",
	lifecycle.Failed:                      "AgentIsConnected AgentInstallationStopped ValidationsPassing InstallationFailed Bound",
	lifecycle.Cancelled:                   "AgentIsConnected AgentInstallationStopped ValidationsPassing InstallationFailed Bound",
	lifecycle.ResettingPendingUserAction:  "AgentIsConnected AgentNotReady ValidationsPassing InstallationNotStarted Bound",
	lifecycle.Unbinding:                   "AgentIsDisconnected Unbinding Unbinding Unbinding Unbinding",
	lifecycle.UnbindingPendingUserAction:  "AgentIsConnected Unbinding Unbinding Unbinding UnbindingPendingUserAction",
	lifecycle.Reclaiming:                  "AgentIsConnected Unbinding Unbinding Unbinding Unbinding",
	lifecycle.ReclaimingRebooting:         "AgentIsConnected Unbinding Unbinding Unbinding Unbinding",
}

func TestEveryStateHasItsConditions(t *testing.T) {
	for _, state := range lifecycle.States {
		h := &domain.Host{State: state, Summary: hardware.Summary{Hash: "x"}, HostSettings: domain.HostSettings{Approved: true}}
		said := status(&snapshot{agent: &agentv1.Agent{}, host: h}, "http://muster", metav1.Now())
		var got []string
		for _, kind := range []string{
			agentv1.ConditionConnected, agentv1.ConditionRequirementsMet, agentv1.ConditionValidated, agentv1.ConditionInstalled, agentv1.ConditionBound,
		} {
			c := agentv1.FindCondition(said.Conditions, kind)
			require.NotNil(t, c, "%s %s", state, kind)
			assert.NotEmpty(t, c.Message)
			got = append(got, c.Reason)
		}
		assert.Equal(t, reasons[state], strings.Join(got, " "), state)
	}
}

func TestReadyIsWhatTheSpecAsksFor(t *testing.T) {
	bound := &agentv1.ClusterReference{Name: "c", Namespace: "n"}
	for sentence, test := range map[string]struct {
		cluster  *agentv1.ClusterReference
		state    lifecycle.State
		approved bool
		obstacle error
		status   corev1.ConditionStatus
		reason   string
	}{
		"a free machine that can be installed is ready":      {nil, lifecycle.KnownUnbound, true, nil, corev1.ConditionTrue, agentv1.ReasonAgentIsReady},
		"a free machine has to be approved":                  {nil, lifecycle.KnownUnbound, false, nil, corev1.ConditionFalse, agentv1.ReasonAgentIsNotApproved},
		"a free machine has to be connected":                 {nil, lifecycle.DisconnectedUnbound, true, nil, corev1.ConditionFalse, agentv1.ReasonAgentIsDisconnected},
		"a free machine has to meet the requirements":        {nil, lifecycle.InsufficientUnbound, true, nil, corev1.ConditionFalse, agentv1.ReasonAgentNotReady},
		"a machine of a cluster that can be installed waits": {bound, lifecycle.Known, true, nil, corev1.ConditionFalse, agentv1.ReasonInstallationNotStarted},
		"a machine that is being installed is not ready":     {bound, lifecycle.InstallingInProgress, true, nil, corev1.ConditionFalse, agentv1.ReasonInstallationInProgress},
		"a machine that is installed is ready":               {bound, lifecycle.Installed, true, nil, corev1.ConditionTrue, agentv1.ReasonInstallationCompleted},
		"a machine that joined a cluster is ready":           {bound, lifecycle.AddedToExistingCluster, true, nil, corev1.ConditionTrue, agentv1.ReasonInstallationCompleted},
		"a failed installation is not ready":                 {bound, lifecycle.Failed, true, nil, corev1.ConditionFalse, agentv1.ReasonInstallationFailed},
		"a machine that is not bound yet is not ready":       {bound, lifecycle.KnownUnbound, true, nil, corev1.ConditionFalse, agentv1.ReasonUnbound},
		"a machine that must boot again is not ready":        {nil, lifecycle.UnbindingPendingUserAction, true, nil, corev1.ConditionFalse, agentv1.ReasonUnbindingPendingUserAction},
		"a spec that cannot be applied is in the way":        {nil, lifecycle.Installed, true, domain.Refuse(domain.Invalid, "x", "no"), corev1.ConditionFalse, agentv1.ReasonInputError},
	} {
		t.Run(sentence, func(t *testing.T) {
			agent := &agentv1.Agent{}
			agent.Spec.ClusterDeploymentName = test.cluster
			h := &domain.Host{State: test.state, Summary: hardware.Summary{Hash: "x"}, HostSettings: domain.HostSettings{Approved: test.approved}}
			said := status(&snapshot{agent: agent, host: h, obstacle: test.obstacle}, "http://muster", metav1.Now())
			c := agentv1.FindCondition(said.Conditions, agentv1.ConditionReady)
			require.NotNil(t, c)
			assert.Equal(t, test.status, c.Status, "%+v", c)
			assert.Equal(t, test.reason, c.Reason, "%+v", c)
			assert.NotEmpty(t, c.Message)
		})
	}
}

func TestTheDiskIsTheOneThatIsInstalledTo(t *testing.T) {
	h := &domain.Host{Summary: hardware.Summary{Hash: "x", Targets: []hardware.Target{{ID: "small", SizeBytes: 4e9}, {ID: "large", SizeBytes: 200e9}}}}
	shown := func() string {
		return status(&snapshot{agent: &agentv1.Agent{}, host: h, minimums: validate.DefaultMinimums}, "http://muster", metav1.Now()).InstallationDiskID
	}
	assert.Equal(t, "large", shown())
	h.InstallationDiskPath = "/dev/sdx"
	assert.Empty(t, shown())
	h.InstallationDiskPath, h.InstallationDiskID = "", "small"
	assert.Equal(t, "small", shown())
}

func TestConditionsSayWhatToDo(t *testing.T) {
	const why = "its disk is broken"
	for state, want := range map[lifecycle.State]map[string]string{
		lifecycle.Known:               {agentv1.ConditionRequirementsMet: "set spec.approved"},
		lifecycle.InsufficientUnbound: {agentv1.ConditionRequirementsMet: why},
		lifecycle.DisconnectedUnbound: {agentv1.ConditionRequirementsMet: why, agentv1.ConditionConnected: "console"},
		lifecycle.Binding:             {agentv1.ConditionBound: "see Connected", agentv1.ConditionRequirementsMet: "see Connected", agentv1.ConditionConnected: "console"},
		lifecycle.Failed:              {agentv1.ConditionInstalled: why + "; to use the machine again, remove spec.clusterDeploymentName"},
	} {
		said := status(&snapshot{agent: &agentv1.Agent{}, host: &domain.Host{State: state, StateInfo: why}}, "http://muster", metav1.Now())
		for kind, sentence := range want {
			assert.Contains(t, agentv1.FindCondition(said.Conditions, kind).Message, sentence, "%s %s", state, kind)
		}
	}
}

func TestAReservedHostIsSaidToBeUntilItsEnd(t *testing.T) {
	now := time.Now()
	seen := &snapshot{agent: &agentv1.Agent{}, host: &domain.Host{State: lifecycle.KnownUnbound, Reservation: domain.Reservation{ID: "a", By: domain.Owner{User: "alice"}, Until: now.Add(time.Minute)}}}
	seen.agent.Status = status(seen, "http://muster", metav1.NewTime(now))
	c := agentv1.FindCondition(seen.agent.Status.Conditions, agentv1.ConditionReserved)
	require.NotNil(t, c)
	assert.Equal(t, corev1.ConditionTrue, c.Status)
	assert.Contains(t, c.Message, seen.host.Reservation.Until.UTC().Format(time.RFC3339))
	assert.NotContains(t, c.Message, "alice")
	said := status(seen, "http://muster", metav1.NewTime(now.Add(time.Minute)))
	assert.Nil(t, agentv1.FindCondition(said.Conditions, agentv1.ConditionReserved))
}

func TestAHostThatIsNotKnownIsSaidToBe(t *testing.T) {
	said := status(&snapshot{agent: &agentv1.Agent{}}, "http://muster", metav1.Now())
	c := agentv1.FindCondition(said.Conditions, agentv1.ConditionConnected)
	assert.Equal(t, corev1.ConditionUnknown, c.Status)
	assert.Equal(t, "NotAvailable", c.Reason)
	assert.Equal(t, corev1.ConditionFalse, agentv1.FindCondition(said.Conditions, agentv1.ConditionReady).Status)
}

func TestErrorsOfTheStoreShowNoDetails(t *testing.T) {
	c := synced(&snapshot{obstacle: fmt.Errorf("pq: password=secret")})
	assert.Equal(t, agentv1.ReasonBackendError, c.Reason)
	assert.NotContains(t, c.Message, "secret")
}

func TestAHugeInventoryFits(t *testing.T) {
	reported := hardware.Inventory{Hostname: strings.Repeat("é", 3000)}
	for i := range 15_000 {
		reported.Disks = append(reported.Disks, hardware.Disk{
			ID: fmt.Sprintf("/dev/disk/by-id/%d", i), Name: strings.Repeat("x", 1000), IOPerf: json.RawMessage(`{"sync_duration":7}`),
		})
	}
	reported.Disks[0].InstallationEligibility.NotEligibleReasons = []string{strings.Repeat("r", 5000)}
	encoded, err := json.Marshal(reported)
	require.NoError(t, err)
	got, err := inventory(encoded, time.Now())
	require.NoError(t, err)
	kept, err := json.Marshal(got)
	require.NoError(t, err)
	assert.LessOrEqual(t, len(kept), maxInventory)
	assert.NotEmpty(t, got.Disks)
	assert.Equal(t, int64(7), got.Disks[0].IoPerf.SyncDurationMilliseconds)
	assert.Len(t, []rune(got.Hostname), maxText)
}

func TestValuesOfLabels(t *testing.T) {
	for text, want := range map[string]string{
		"Dell Inc.": "DellInc", "PowerEdge R640 (SKU=NotProvided)": "PowerEdgeR640SKUNotProvided", "": "", "---": "", strings.Repeat("a", 62) + "-b": strings.Repeat("a", 62),
	} {
		assert.Equal(t, want, domain.LabelValue(text), text)
	}
}

func TestAReleaseSaysWhatItWaitsFor(t *testing.T) {
	at := time.Now()
	release := func(change ...func(*domain.Release)) domain.Release {
		r := domain.Release{StartedAt: at, NodeName: "worker-1", Wipe: domain.WipeInstalledDisk, Cluster: domain.KubeRef{Namespace: "team", Name: "blue"}}
		for _, c := range change {
			c(&r)
		}
		return r
	}
	left := func(r *domain.Release) { r.LeftAt = at }
	wiped := func(r *domain.Release) { r.WipedAt = at }
	failed := func(r *domain.Release) { r.WipeFailure = "disk with serial number S1 is read only" }
	ended := func(r *domain.Release) { r.EndedAt = at }
	stopping := func(r *domain.Release) { r.Stopping = true }
	for name, c := range map[string]struct {
		state   lifecycle.State
		release domain.Release
		want    string
		says    string
	}{
		"never bound":             {state: lifecycle.KnownUnbound},
		"drains":                  {state: lifecycle.Reclaiming, release: release(), want: "False Draining", says: "worker-1"},
		"restarts":                {state: lifecycle.Reclaiming, release: release(left), want: "False Rebooting"},
		"is restarting":           {state: lifecycle.ReclaimingRebooting, release: release(left), want: "False Rebooting"},
		"drains, cannot restart":  {state: lifecycle.UnbindingPendingUserAction, release: release(), want: "False Draining", says: "worker-1"},
		"cannot restart":          {state: lifecycle.UnbindingPendingUserAction, release: release(left), want: "False WaitingForUser", says: "boot it"},
		"stops writing":           {state: lifecycle.InsufficientUnbound, release: release(left, stopping), want: "False Wiping", says: "stops its installation"},
		"is wiped":                {state: lifecycle.InsufficientUnbound, release: release(left), want: "False Wiping"},
		"cannot be wiped":         {state: lifecycle.InsufficientUnbound, release: release(left, failed), want: "False WipeFailed", says: "S1"},
		"wiped before its drain":  {state: lifecycle.InsufficientUnbound, release: release(wiped), want: "False Draining"},
		"free":                    {state: lifecycle.KnownUnbound, release: release(left, wiped, ended), want: "True Released", says: "wiped"},
		"free, and silent by now": {state: lifecycle.DisconnectedUnbound, release: release(left, wiped, ended), want: "True Released"},
	} {
		t.Run(name, func(t *testing.T) {
			agent := &agentv1.Agent{Status: agentv1.AgentStatus{Conditions: []agentv1.Condition{{Type: agentv1.ConditionReleased, Status: "False", Reason: "Old"}}}}
			said := status(&snapshot{agent: agent, host: &domain.Host{State: c.state, Release: c.release}}, "http://muster", metav1.Now())
			found := agentv1.FindCondition(said.Conditions, agentv1.ConditionReleased)
			if c.want == "" {
				assert.Nil(t, found)
				assert.Nil(t, said.DeprovisionInfo)
				return
			}
			assert.Equal(t, c.want, string(found.Status)+" "+found.Reason)
			assert.Contains(t, found.Message, c.says)
			assert.Equal(t, "blue", said.DeprovisionInfo.ClusterName)
		})
	}
}

// What a pool that is gone left on an Agent says what a lost release of it wipes, and nothing of the next cluster.
func TestWhatIsLeftOfAPoolIsOfItsReleaseAlone(t *testing.T) {
	left := map[string]string{agentv1.MachinePoolWipeAnnotation: "AllDisks"}
	taken := map[string]string{agentv1.MachinePoolWipeAnnotation: "AllDisks", agentv1.MachinePoolBoundAtAnnotation: "2026-01-01T00:00:00Z"}
	labelled := map[string]string{agentv1.MachinePoolLabel: "p"}
	for name, c := range map[string]struct {
		labels, annotations map[string]string
		want                domain.Wipe
	}{
		"no pool":                           {nil, nil, ""},
		"a pool":                            {labelled, taken, domain.WipeAllDisks},
		"a user took its label":             {nil, taken, domain.WipeAllDisks},
		"it was taken before pools said so": {labelled, nil, domain.WipeInstalledDisk},
		"the pool is gone":                  {nil, left, ""},
	} {
		agent := &agentv1.Agent{ObjectMeta: metav1.ObjectMeta{Labels: c.labels, Annotations: c.annotations}}
		assert.Equal(t, c.want, poolWipe(agent), name)
	}
	named, ofRest := &domain.Cluster{ID: "c", Kube: domain.KubeRef{Namespace: "n", Name: "blue"}}, &domain.Cluster{ID: "c"}
	for name, c := range map[string]struct {
		cluster *domain.Cluster
		names   *agentv1.ClusterReference
		want    string
	}{
		"it is free":                      {nil, nil, "AllDisks"},
		"it is bound next":                {nil, &agentv1.ClusterReference{Name: "next"}, "AllDisks"},
		"it is in the next cluster":       {named, &agentv1.ClusterReference{Name: "next"}, ""},
		"a user of REST has bound it":     {ofRest, nil, ""},
		"its release waits for something": {named, nil, "AllDisks"},
	} {
		agent := &agentv1.Agent{ObjectMeta: metav1.ObjectMeta{Annotations: maps.Clone(left)}, Spec: agentv1.AgentSpec{ClusterDeploymentName: c.names}}
		seen := &snapshot{infraEnv: &agentv1.InfraEnv{}, agent: agent, host: &domain.Host{}, cluster: c.cluster}
		if c.cluster != nil {
			seen.host.ClusterID = c.cluster.ID
		}
		require.NoError(t, relabel(t.Context(), seen, nil))
		assert.Equal(t, c.want, agent.Annotations[agentv1.MachinePoolWipeAnnotation], name)
	}
}
