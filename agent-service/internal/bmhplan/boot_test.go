// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package bmhplan_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-io/muster/agent-service/internal/bmhplan"
	"github.com/muster-io/muster/agent-service/internal/lifecycle"
	agentv1 "github.com/muster-io/muster/apis/agentinstall/v1beta1"
	metal3v1 "github.com/muster-io/muster/apis/metal3/v1alpha1"
)

func image(url, format string) *metal3v1.Image { return &metal3v1.Image{URL: url, DiskFormat: &format} }

// in is an Agent in a state.
func in(state lifecycle.State) *agentv1.Agent {
	a := agent("in-" + string(state))
	a.Status.DebugInfo.State = string(state)
	return a
}

// bootsImage checks what a host is that boots the image of its InfraEnv.
func bootsImage(t *testing.T, host *metal3v1.BareMetalHost) {
	t.Helper()
	require.NotNil(t, host)
	assert.Equal(t, image(iso, "live-iso"), host.Spec.Image)
	assert.True(t, host.Spec.Online)
	assert.Equal(t, "disabled", host.Spec.AutomatedCleaningMode)
	assert.Equal(t, "disabled", host.Annotations[metal3v1.InspectAnnotation])
}

func TestWhatAHostBoots(t *testing.T) {
	for name, test := range map[string]struct {
		given func(*bmhplan.Snapshot)
		boots bool
		why   string
	}{
		"the image of its InfraEnv":             {func(s *bmhplan.Snapshot) { s.Agents = nil }, true, ""},
		"it has the image":                      {func(s *bmhplan.Snapshot) { s.Host.Spec.Image = image(iso, "live-iso") }, false, ""},
		"a new address, and the machine is on":  {func(s *bmhplan.Snapshot) { s.Host.Spec.Image = image(iso+"?old", "live-iso") }, false, ""},
		"a new address, and no machine appears": {func(s *bmhplan.Snapshot) { s.Host.Spec.Image, s.Agents = image(iso+"?old", "live-iso"), nil }, true, ""},
		"an image of its user":                  {func(s *bmhplan.Snapshot) { s.Host.Spec.Image = image("https://x/disk.img", "raw") }, false, bmhplan.ReasonOtherImage},
		"no management controller":              {func(s *bmhplan.Snapshot) { s.Agents, s.Host.Spec.BMC = nil, nil }, false, ""},
		"no credentials":                        {func(s *bmhplan.Snapshot) { s.Agents, s.Host.Spec.BMC.CredentialsName = nil, "" }, false, ""},
		"no image yet":                          {func(s *bmhplan.Snapshot) { s.Agents, s.InfraEnv.Status.ISODownloadURL = nil, "" }, false, ""},
		"discovery holds it": {func(s *bmhplan.Snapshot) {
			s.Agents, s.Host.Annotations[metal3v1.PausedAnnotation] = nil, "discovery.metal3.io"
		}, false, ""},
		"it is detached":     {func(s *bmhplan.Snapshot) { s.Agents, s.Host.Annotations[metal3v1.DetachedAnnotation] = nil, "" }, false, ""},
		"it is not approved": {func(s *bmhplan.Snapshot) { s.Agents, s.Host.Labels[metal3v1.ApprovalLabel] = nil, "pending" }, false, ""},
		"it is in use": {func(s *bmhplan.Snapshot) {
			s.Host.Spec.ConsumerRef = &corev1.ObjectReference{Kind: "Metal3Machine", Name: "m"}
		}, false, bmhplan.ReasonHostInUse},
		"it is externally provisioned": {func(s *bmhplan.Snapshot) { s.Host.Spec.ExternallyProvisioned = true }, false, bmhplan.ReasonHostInUse},
		"no InfraEnv":                  {func(s *bmhplan.Snapshot) { s.InfraEnv = nil }, false, bmhplan.ReasonInfraEnvMissing},
		"its machine is installed from another InfraEnv": {func(s *bmhplan.Snapshot) {
			s.Agents, s.Elsewhere = nil, []*agentv1.Agent{in(lifecycle.AddedToExistingCluster)}
		}, false, bmhplan.ReasonHostInUse},
		"its machine is installed, and had the image of another InfraEnv": {func(s *bmhplan.Snapshot) {
			s.Agents, s.Elsewhere, s.Host.Spec.Image = nil, []*agentv1.Agent{in(lifecycle.Installed)}, image(iso+"?other", "live-iso")
		}, false, bmhplan.ReasonHostInUse},
		"its machine is free in another InfraEnv": {func(s *bmhplan.Snapshot) {
			s.Agents, s.Elsewhere, s.Host.Spec.Image = nil, []*agentv1.Agent{in(lifecycle.KnownUnbound)}, image(iso+"?other", "live-iso")
		}, true, ""},
		"several machines report its MAC, and one is installed": {func(s *bmhplan.Snapshot) {
			s.Agents = []*agentv1.Agent{in(lifecycle.DisconnectedUnbound), in(lifecycle.Installed)}
		}, false, bmhplan.ReasonAmbiguousMachine},
		"its cluster is not back after the service lost its data": {func(s *bmhplan.Snapshot) {
			s.Agents = []*agentv1.Agent{in(lifecycle.DisconnectedUnbound)}
			s.Agents[0].Status.Progress.CurrentStage = string(lifecycle.StageDone)
		}, false, bmhplan.ReasonHostInUse},
		"it is deleted": {func(s *bmhplan.Snapshot) {
			now := metav1.Now()
			s.Host.DeletionTimestamp = &now
		}, false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := given()
			test.given(&s)
			before := s.Host.DeepCopy()
			d := bmhplan.Plan(s)
			assert.Equal(t, before, s.Host, "what was seen is not changed")
			assert.Equal(t, test.why, d.Reason, d.Problem)
			if !test.boots {
				assert.Nil(t, d.Host)
				return
			}
			bootsImage(t, d.Host)
			assert.NotContains(t, d.Host.Annotations, metal3v1.RebootAnnotation)
			s.Host = d.Host
			assert.Nil(t, bmhplan.Plan(s).Host, "once is enough")
		})
	}
}

// A label that is put on the host of a machine restarts it only where it belongs to no cluster and does not run the image already.
func TestWhichMachinesTheLabelOfAHostRestarts(t *testing.T) {
	const boots, links, refuses = "boots", "links", "refuses"
	want := map[lifecycle.State]string{
		lifecycle.DisconnectedUnbound: boots, lifecycle.Unbinding: boots,
		lifecycle.DiscoveringUnbound: links, lifecycle.InsufficientUnbound: links, lifecycle.KnownUnbound: links,
		lifecycle.UnbindingPendingUserAction: links, lifecycle.Reclaiming: links, lifecycle.ReclaimingRebooting: links,
	}
	for _, state := range append([]lifecycle.State{""}, lifecycle.States...) {
		t.Run(string(state), func(t *testing.T) {
			s := given()
			s.Agents = []*agentv1.Agent{in(state)}
			d := bmhplan.Plan(s)
			require.NotNil(t, d.Agent)
			assert.Equal(t, "node-1", d.Agent.Labels[agentv1.BareMetalHostLabel])
			switch want[state] {
			case boots:
				bootsImage(t, d.Host)
				assert.Empty(t, d.Problem)
			case links:
				assert.Nil(t, d.Host)
				assert.Empty(t, d.Problem)
			default:
				assert.Nil(t, d.Host)
				assert.Equal(t, bmhplan.ReasonHostInUse, d.Reason)
				assert.Contains(t, d.Problem, "the machine of Agent in-"+string(state))
				s.Agents[0] = d.Agent
				d = bmhplan.Plan(s)
				assert.Nil(t, d.Host)
				assert.Empty(t, d.Problem, "it is said once, and not with each change of the Agent")
			}
		})
	}
}

func TestAHostThatDiscoveryHoldsDoesNotApproveItsMachine(t *testing.T) {
	s := given()
	s.Host.Labels[metal3v1.ApprovalLabel] = "pending"
	assert.Equal(t, bmhplan.Decision{}, bmhplan.Plan(s))
	s.Host.Annotations[metal3v1.ApprovedAnnotation] = "true"
	d := bmhplan.Plan(s)
	require.NotNil(t, d.Agent)
	assert.True(t, d.Agent.Spec.Approved)
}

func TestAMachineThatLeftItsClusterIsRestartedOnce(t *testing.T) {
	at := metav1.NewTime(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
	waiting := func() bmhplan.Snapshot {
		s := given()
		s.Agents[0].Labels = map[string]string{agentv1.BareMetalHostLabel: s.Host.Name}
		s.Agents[0].Status.DebugInfo.State = string(lifecycle.UnbindingPendingUserAction)
		s.Agents[0].Status.Conditions = []agentv1.Condition{{Type: agentv1.ConditionReleased, Status: corev1.ConditionFalse, Reason: agentv1.ReasonWaitingForUser, LastTransitionTime: at}}
		return s
	}
	for name, test := range map[string]struct {
		given    func(*bmhplan.Snapshot)
		restarts bool
		why      string
	}{
		"without an image":        {func(*bmhplan.Snapshot) {}, true, ""},
		"it has the image":        {func(s *bmhplan.Snapshot) { s.Host.Spec.Image = image(iso, "live-iso") }, true, ""},
		"an address from before":  {func(s *bmhplan.Snapshot) { s.Host.Spec.Image = image(iso+"?old", "live-iso") }, true, ""},
		"a release before it":     {func(s *bmhplan.Snapshot) { s.Host.Annotations[agentv1.BMHRestartedAnnotation] = "2025-01-01T00:00:00Z" }, true, ""},
		"an image of its user":    {func(s *bmhplan.Snapshot) { s.Host.Spec.Image = image("https://x/disk.img", "raw") }, false, bmhplan.ReasonOtherImage},
		"no controller":           {func(s *bmhplan.Snapshot) { s.Host.Spec.BMC = nil }, false, ""},
		"it is paused":            {func(s *bmhplan.Snapshot) { s.Host.Annotations[metal3v1.PausedAnnotation] = "" }, false, ""},
		"it is detached":          {func(s *bmhplan.Snapshot) { s.Host.Annotations[metal3v1.DetachedAnnotation] = "" }, false, ""},
		"it is off until resumed": {func(s *bmhplan.Snapshot) { s.Host.Annotations[agentv1.BMHHibernatesAnnotation] = "a/b" }, false, ""},
		"it is in use": {func(s *bmhplan.Snapshot) {
			s.Host.Spec.ConsumerRef = &corev1.ObjectReference{Kind: "Metal3Machine", Name: "m"}
		}, false, bmhplan.ReasonHostInUse},
		"it is externally provisioned": {func(s *bmhplan.Snapshot) { s.Host.Spec.ExternallyProvisioned = true }, false, bmhplan.ReasonHostInUse},
		"its Node is being removed": {func(s *bmhplan.Snapshot) {
			s.Agents[0].Status.DeprovisionInfo = &agentv1.AgentDeprovisionInfo{Message: agentv1.NodeIsRemoved}
		}, false, ""},
		"it restarts by itself":        {func(s *bmhplan.Snapshot) { s.Agents[0].Status.DebugInfo.State = string(lifecycle.Reclaiming) }, false, ""},
		"the service does not know it": {func(s *bmhplan.Snapshot) { s.Agents[0].Status.DebugInfo.State = "" }, false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := waiting()
			test.given(&s)
			d := bmhplan.Plan(s)
			assert.Equal(t, test.why, d.Reason, d.Problem)
			if !test.restarts {
				assert.Nil(t, d.Host)
				return
			}
			bootsImage(t, d.Host)
			assert.JSONEq(t, `{"mode":"hard"}`, d.Host.Annotations[metal3v1.RebootAnnotation])
			assert.Equal(t, "2026-01-02T03:04:05Z", d.Host.Annotations[agentv1.BMHRestartedAnnotation])
			s.Host = d.Host
			assert.Nil(t, bmhplan.Plan(s).Host, "once for each release")
			delete(s.Host.Annotations, metal3v1.RebootAnnotation) // as the operator of the host does when the machine is off
			assert.Nil(t, bmhplan.Plan(s).Host, "once for each release")
		})
	}
	registered := waiting()
	registered.Host = bmhplan.Plan(registered).Host
	registered.Agents[0].Status.DebugInfo.State = ""
	assert.Nil(t, bmhplan.Plan(registered).Host, "it is not known whether it has registered")
	registered.Agents[0].Status.DebugInfo.State = string(lifecycle.DiscoveringUnbound)
	registered.Host.Spec.BMC = nil
	d := bmhplan.Plan(registered)
	require.NotNil(t, d.Host)
	assert.NotContains(t, d.Host.Annotations, agentv1.BMHRestartedAnnotation)
	assert.NotContains(t, d.Host.Annotations, metal3v1.RebootAnnotation, "a machine that is there is not restarted any more")
	registered.Host = d.Host
	assert.Nil(t, bmhplan.Plan(registered).Host)
	registered.Host.Annotations[metal3v1.RebootAnnotation] = ""
	assert.Nil(t, bmhplan.Plan(registered).Host, "what a user asks for stays")
}
