// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package bmhplan_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-io/muster/agent-service/internal/bmhplan"
	"github.com/muster-io/muster/agent-service/internal/lifecycle"
	agentv1 "github.com/muster-io/muster/apis/agentinstall/v1beta1"
	metal3v1 "github.com/muster-io/muster/apis/metal3/v1alpha1"
)

const iso = "https://agents.example.org/images/1/discovery.iso"

// given is a host with a management controller, the InfraEnv that it names, and one Agent of its machine.
func given() bmhplan.Snapshot {
	return bmhplan.Snapshot{
		Host: &metal3v1.BareMetalHost{
			ObjectMeta: metav1.ObjectMeta{Namespace: "metal", Name: "node-1", Labels: map[string]string{agentv1.InfraEnvLabel: "rack"}, Annotations: map[string]string{}},
			Spec:       metal3v1.BareMetalHostSpec{BMC: &metal3v1.BMCDetails{Address: "redfish://192.0.2.1", CredentialsName: "bmc"}},
		},
		InfraEnv: &agentv1.InfraEnv{ObjectMeta: metav1.ObjectMeta{Namespace: "metal", Name: "rack"}, Status: agentv1.InfraEnvStatus{ISODownloadURL: iso}},
		Agents:   []*agentv1.Agent{agent("a")},
	}
}

func agent(name string) *agentv1.Agent {
	return &agentv1.Agent{
		ObjectMeta: metav1.ObjectMeta{Namespace: "metal", Name: name}, Spec: agentv1.AgentSpec{Role: "auto-assign", Hostname: "as-reported"},
		Status: agentv1.AgentStatus{DebugInfo: agentv1.AgentDebugInfo{State: string(lifecycle.KnownUnbound)}, Inventory: agentv1.HostInventory{Disks: []agentv1.Disk{
			{ID: "small", Path: "/dev/sda", SizeBytes: 10e9, DriveType: "HDD", Serial: "S1", InstallationEligibility: agentv1.InstallationEligibility{Eligible: true}},
			{ID: "usb", Path: "/dev/sdb", SizeBytes: 900e9, DriveType: "SSD", Serial: "S2"},
			{ID: "large", Path: "/dev/sdc", SizeBytes: 900e9, DriveType: "SSD", Serial: "S3", Model: "ACME 9000", InstallationEligibility: agentv1.InstallationEligibility{Eligible: true}},
		}}},
	}
}

func TestWhatAnAgentGetsFromItsHost(t *testing.T) {
	linked := func(s *bmhplan.Snapshot) {
		s.Agents[0].Labels = map[string]string{agentv1.BareMetalHostLabel: "node-1"}
	}
	bound := &agentv1.ClusterReference{Namespace: "blue", Name: "blue"}
	for name, test := range map[string]struct {
		given func(*bmhplan.Snapshot)
		want  func(*agentv1.Agent)
		why   string
	}{
		"it is linked, and approved": {func(*bmhplan.Snapshot) {}, func(a *agentv1.Agent) {}, ""},
		"a user approves the host that discovery found": {func(s *bmhplan.Snapshot) {
			s.Host.Labels[metal3v1.ApprovalLabel], s.Host.Annotations[metal3v1.ApprovedAnnotation] = "pending", "true"
		}, func(a *agentv1.Agent) {}, ""},
		"it was linked before discovery held the host": {func(s *bmhplan.Snapshot) {
			linked(s)
			s.Host.Labels[metal3v1.ApprovalLabel], s.Host.Annotations[agentv1.BMHRoleAnnotation] = "pending", "worker"
		}, func(a *agentv1.Agent) { a.Spec.Approved, a.Spec.Role = false, "worker" }, ""},
		"what a user disapproved later stays": {func(s *bmhplan.Snapshot) {
			linked(s)
			s.Host.Annotations[agentv1.BMHRoleAnnotation] = "worker"
		}, func(a *agentv1.Agent) { a.Spec.Approved, a.Spec.Role = false, "worker" }, ""},
		"role, name, arguments and overrides": {func(s *bmhplan.Snapshot) {
			s.Host.Annotations = map[string]string{
				agentv1.BMHRoleAnnotation: "master", agentv1.BMHHostnameAnnotation: "m1", agentv1.BMHMachineConfigPoolAnnotation: "infra",
				agentv1.BMHInstallerArgsAnnotation: `["--copy-network"]`, agentv1.BMHIgnitionConfigOverridesAnnotation: `{"ignition":{"version":"3.2.0"}}`,
			}
		}, func(a *agentv1.Agent) {
			a.Spec.Role, a.Spec.Hostname, a.Spec.MachineConfigPool = "master", "m1", "infra"
			a.Spec.InstallerArgs, a.Spec.IgnitionConfigOverrides = `["--copy-network"]`, `{"ignition":{"version":"3.2.0"}}`
		}, ""},
		"labels of its node are added to those it has": {func(s *bmhplan.Snapshot) {
			s.Agents[0].Spec.NodeLabels = map[string]string{"rack": "a", "tier": "web"}
			s.Host.Annotations = map[string]string{
				"bmac.agent-install.openshift.io.node-label.node-role.kubernetes.io/infra": "", "bmac.agent-install.openshift.io.node-label.rack": "r7",
			}
		}, func(a *agentv1.Agent) {
			a.Spec.NodeLabels = map[string]string{"node-role.kubernetes.io/infra": "", "rack": "r7", "tier": "web"}
		}, ""},
		"a label of its node changes later": {func(s *bmhplan.Snapshot) {
			linked(s)
			s.Agents[0].Spec.Approved, s.Agents[0].Spec.NodeLabels = true, map[string]string{"rack": "a"}
			s.Host.Annotations["bmac.agent-install.openshift.io.node-label.rack"] = "b"
		}, func(a *agentv1.Agent) { a.Spec.NodeLabels = map[string]string{"rack": "b"} }, ""},
		"an annotation that the service does not know": {func(s *bmhplan.Snapshot) {
			s.Host.Annotations["bmac.agent-install.openshift.io/fencing-credentials"], s.Host.Annotations[agentv1.BMHRemoveAgentAnnotation] = "bmc", "false"
		}, func(*agentv1.Agent) {}, bmhplan.ReasonUnknownAnnotation},
		"a misspelt prefix of labels": {func(s *bmhplan.Snapshot) {
			s.Host.Annotations["bmac.agent-install.openshift.io.node-labels.rack"] = "a"
		},
			func(*agentv1.Agent) {}, bmhplan.ReasonUnknownAnnotation},
		"an annotation without a value clears": {func(s *bmhplan.Snapshot) { s.Host.Annotations[agentv1.BMHHostnameAnnotation] = "" }, func(a *agentv1.Agent) { a.Spec.Hostname = "" }, ""},
		"it is bound": {func(s *bmhplan.Snapshot) { s.Host.Annotations[agentv1.BMHClusterReferenceAnnotation] = "blue/blue" },
			func(a *agentv1.Agent) { a.Spec.ClusterDeploymentName = bound }, ""},
		"it is freed": {func(s *bmhplan.Snapshot) {
			s.Agents[0].Spec.ClusterDeploymentName = bound
			s.Host.Annotations[agentv1.BMHClusterReferenceAnnotation] = ""
		}, func(a *agentv1.Agent) { a.Spec.ClusterDeploymentName = nil }, ""},
		"a MachinePool took it when it was free": {func(s *bmhplan.Snapshot) {
			s.Agents[0].Labels = map[string]string{agentv1.MachinePoolLabel: "workers"}
			s.Agents[0].Spec.ClusterDeploymentName = bound
			s.Host.Annotations[agentv1.BMHClusterReferenceAnnotation] = ""
		}, func(a *agentv1.Agent) { a.Labels[agentv1.MachinePoolLabel] = "workers" }, ""},
		"without the annotation it stays bound": {func(s *bmhplan.Snapshot) { s.Agents[0].Spec.ClusterDeploymentName = bound }, func(*agentv1.Agent) {}, ""},
		"a reference without a namespace": {func(s *bmhplan.Snapshot) { s.Host.Annotations[agentv1.BMHClusterReferenceAnnotation] = "blue" },
			func(*agentv1.Agent) {}, bmhplan.ReasonInvalidAnnotation},
		"a hint at its disk": {func(s *bmhplan.Snapshot) {
			s.Host.Spec.RootDeviceHints = &metal3v1.RootDeviceHints{MinSizeGigabytes: 500, Rotational: new(false), Model: "ACME"}
		}, func(a *agentv1.Agent) { a.Spec.InstallationDiskID = "large" }, ""},
		"a hint at a disk that cannot be installed to": {func(s *bmhplan.Snapshot) { s.Host.Spec.RootDeviceHints = &metal3v1.RootDeviceHints{SerialNumber: "S2"} },
			func(*agentv1.Agent) {}, bmhplan.ReasonNoSuchDisk},
		"a user chose the disk": {func(s *bmhplan.Snapshot) {
			s.Agents[0].Spec.InstallationDiskID = "small"
			s.Host.Spec.RootDeviceHints = &metal3v1.RootDeviceHints{SerialNumber: "S3"}
		}, func(*agentv1.Agent) {}, ""},
		"the disks are not known yet": {func(s *bmhplan.Snapshot) {
			s.Agents[0].Status.Inventory.Disks = nil
			s.Host.Spec.RootDeviceHints = &metal3v1.RootDeviceHints{SerialNumber: "S3"}
		}, func(*agentv1.Agent) {}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := given()
			test.given(&s)
			want := s.Agents[0].DeepCopy()
			want.Labels, want.Spec.Approved = map[string]string{agentv1.BareMetalHostLabel: "node-1"}, true
			test.want(want)
			d := bmhplan.Plan(s)
			assert.Equal(t, test.why, d.Reason, d.Problem)
			require.NotNil(t, d.Agent)
			assert.Equal(t, want, d.Agent)
			s.Agents[0] = d.Agent
			assert.Nil(t, bmhplan.Plan(s).Agent, "once is enough")
		})
	}
}

// A machine says by itself which MACs it has: a second one that says the same gets nothing from the host, and takes nothing from the first.
func TestAHostThatIsDeletedTakesItsAgentWithIt(t *testing.T) {
	now := metav1.Now()
	deleted := func(change ...func(*bmhplan.Snapshot)) bmhplan.Snapshot {
		s := given()
		s.Host.DeletionTimestamp, s.Host.Finalizers = &now, []string{"metal3", agentv1.BMHFinalizer}
		s.Host.Annotations[agentv1.BMHRemoveAgentAnnotation] = "true"
		s.Agents[0].Labels = map[string]string{agentv1.BareMetalHostLabel: s.Host.Name}
		s.Agents[0].Spec.Approved = true
		for _, one := range change {
			one(&s)
		}
		return s
	}
	held := given()
	held.Host.Annotations[agentv1.BMHRemoveAgentAnnotation] = "true"
	assert.Equal(t, []string{agentv1.BMHFinalizer}, bmhplan.Plan(held).Host.Finalizers)
	let := given()
	let.Host.Finalizers, let.Host.Annotations[agentv1.BMHRemoveAgentAnnotation] = []string{agentv1.BMHFinalizer}, "false"
	assert.Empty(t, bmhplan.Plan(let).Host.Finalizers)

	freed := bmhplan.Plan(deleted(func(s *bmhplan.Snapshot) {
		s.Agents[0].Spec.ClusterDeploymentName = &agentv1.ClusterReference{Namespace: "team-a", Name: "blue"}
	}))
	require.NotNil(t, freed.Agent)
	assert.Nil(t, freed.Agent.Spec.ClusterDeploymentName)
	assert.False(t, freed.Agent.Spec.Approved)
	assert.Contains(t, freed.Agent.Annotations, agentv1.LeavesClusterAnnotation, "the cluster of its InfraEnv lets it go")
	assert.Nil(t, freed.Remove)
	for name, waits := range map[string]func(*bmhplan.Snapshot){
		"it is bound yet": func(s *bmhplan.Snapshot) {
			s.Agents[0].Status.Conditions = []agentv1.Condition{{Type: agentv1.ConditionBound, Status: "True", Reason: agentv1.ReasonBound}}
		},
		"the Node is drained": func(s *bmhplan.Snapshot) {
			s.Agents[0].Status.DeprovisionInfo = &agentv1.AgentDeprovisionInfo{Message: agentv1.NodeIsRemoved}
		},
		"it is being deleted":      func(s *bmhplan.Snapshot) { s.Agents[0].DeletionTimestamp = &now },
		"the finalizer is removed": func(s *bmhplan.Snapshot) { s.Host.Finalizers = []string{"metal3"} },
	} {
		assert.Equal(t, bmhplan.Decision{}, bmhplan.Plan(deleted(waits)), name)
	}
	assert.Equal(t, "a", bmhplan.Plan(deleted()).Remove.Name)
	for name, goes := range map[string]func(*bmhplan.Snapshot){
		"the Agent is gone":           func(s *bmhplan.Snapshot) { s.Agents = nil },
		"the machine registers again": func(s *bmhplan.Snapshot) { s.Agents[0].Labels = nil },
		"a user changes their mind":   func(s *bmhplan.Snapshot) { delete(s.Host.Annotations, agentv1.BMHRemoveAgentAnnotation) },
	} {
		d := bmhplan.Plan(deleted(goes))
		require.NotNil(t, d.Host, name)
		assert.Equal(t, []string{"metal3"}, d.Host.Finalizers, name)
		assert.Nil(t, d.Remove, name)
	}
}

func TestWhichAgentIsThatOfTheHost(t *testing.T) {
	label := func(a *agentv1.Agent, host string) *agentv1.Agent {
		a.Labels = map[string]string{agentv1.BareMetalHostLabel: host}
		return a
	}
	for name, test := range map[string]struct {
		agents []*agentv1.Agent
		want   string
		why    string
	}{
		"the only one":                  {[]*agentv1.Agent{agent("a")}, "a", ""},
		"none":                          {nil, "", ""},
		"two that are not linked":       {[]*agentv1.Agent{agent("b"), agent("a")}, "", bmhplan.ReasonAmbiguousMachine},
		"one beside that of this host":  {[]*agentv1.Agent{agent("b"), label(agent("a"), "node-1")}, "", ""},
		"that of another host":          {[]*agentv1.Agent{label(agent("a"), "node-2")}, "", bmhplan.ReasonAmbiguousMachine},
		"one beside that of other host": {[]*agentv1.Agent{agent("b"), label(agent("a"), "node-2")}, "", bmhplan.ReasonAmbiguousMachine},
	} {
		t.Run(name, func(t *testing.T) {
			s := given()
			s.Agents = test.agents
			d := bmhplan.Plan(s)
			assert.Equal(t, test.why, d.Reason, d.Problem)
			if test.want == "" {
				assert.Nil(t, d.Agent)
				return
			}
			require.NotNil(t, d.Agent)
			assert.Equal(t, test.want, d.Agent.Name)
		})
	}
}
