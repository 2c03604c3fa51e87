// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package health_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	agentv1 "github.com/muster-io/muster/apis/agentinstall/v1beta1"
	hivev1 "github.com/muster-io/muster/apis/hive/v1"
	hiveextv1 "github.com/muster-io/muster/apis/hiveextensions/v1beta1"
	ipamv1 "github.com/muster-io/muster/apis/ipam/v1alpha1"
	metal3v1 "github.com/muster-io/muster/apis/metal3/v1alpha1"
	"github.com/muster-io/muster/kubectl-muster/internal/health"
)

func hive(conditions ...string) (out []hivev1.Condition) {
	for i := 0; i < len(conditions); i += 3 {
		out = append(out, hivev1.Condition{Type: conditions[i], Status: corev1.ConditionStatus(conditions[i+1]), Reason: conditions[i+2], Message: "why"})
	}
	return out
}

func agents(conditions ...string) (out []agentv1.Condition) {
	for i := 0; i < len(conditions); i += 3 {
		out = append(out, agentv1.Condition{Type: conditions[i], Status: corev1.ConditionStatus(conditions[i+1]), Reason: conditions[i+2], Message: "why"})
	}
	return out
}

func standard(conditions ...string) (out []metav1.Condition) {
	for i := 0; i < len(conditions); i += 3 {
		out = append(out, metav1.Condition{Type: conditions[i], Status: metav1.ConditionStatus(conditions[i+1]), Reason: conditions[i+2], Message: "why"})
	}
	return out
}

// leaving are the conditions of a machine on its way from a cluster.
func leaving(bound string) []agentv1.Condition {
	return agents("SpecSynced", "True", "SyncOK", "Connected", "True", "AgentIsConnected", "RequirementsMet", "False", "Unbinding", "Validated", "False", "Unbinding",
		"Installed", "False", "Unbinding", "Bound", "False", bound)
}

func TestOf(t *testing.T) {
	pool := func(c []hivev1.Condition) *hivev1.ClusterPool {
		return &hivev1.ClusterPool{Status: hivev1.ClusterPoolStatus{Conditions: c}}
	}
	claim := func(c []hivev1.Condition) *hivev1.ClusterClaim {
		return &hivev1.ClusterClaim{Status: hivev1.ClusterClaimStatus{Conditions: c}}
	}
	cluster := func(c []hivev1.Condition) *hivev1.ClusterDeployment {
		return &hivev1.ClusterDeployment{Status: hivev1.ClusterDeploymentStatus{Conditions: c}}
	}
	install := func(c []hivev1.Condition) *hiveextv1.AgentClusterInstall {
		return &hiveextv1.AgentClusterInstall{Status: hiveextv1.AgentClusterInstallStatus{Conditions: c}}
	}
	agent := func(c []agentv1.Condition) *agentv1.Agent {
		return &agentv1.Agent{Status: agentv1.AgentStatus{Conditions: c}}
	}
	infraEnv := func(c []agentv1.Condition) *agentv1.InfraEnv {
		return &agentv1.InfraEnv{Status: agentv1.InfraEnvStatus{Conditions: c}}
	}
	discovery := func(c []metav1.Condition) *metal3v1.BareMetalHostDiscovery {
		return &metal3v1.BareMetalHostDiscovery{Status: metal3v1.BareMetalHostDiscoveryStatus{Conditions: c}}
	}
	addresses := func(c []metav1.Condition) *ipamv1.IPPool {
		return &ipamv1.IPPool{Status: ipamv1.IPPoolStatus{Conditions: c}}
	}
	machines := func(c []hivev1.Condition) *hivev1.MachinePool {
		platform := hivev1.MachinePoolPlatform{AgentBareMetal: &hivev1.AgentBareMetalMachinePool{}}
		return &hivev1.MachinePool{Spec: hivev1.MachinePoolSpec{Platform: platform}, Status: hivev1.MachinePoolStatus{Conditions: c}}
	}
	reserved := func(c []agentv1.Condition) *agentv1.AgentReservation {
		return &agentv1.AgentReservation{Status: agentv1.AgentReservationStatus{Conditions: c}}
	}
	found := func(c []metav1.Condition) *metal3v1.BareMetalHost {
		return &metal3v1.BareMetalHost{Status: metal3v1.BareMetalHostStatus{Conditions: c}}
	}
	released := claim(hive("Pending", "False", "ClusterClaimed", "ClusterRunning", "False", "ClusterDeleting"))
	released.DeletionTimestamp = &metav1.Time{Time: time.Now()}
	misbooted := agent(agents("Connected", "True", "AgentIsConnected", "RequirementsMet", "True", "AgentAlreadyInstalling", "Installed", "False", "InstallationInProgress", "Bound", "True", "Bound"))
	misbooted.Status.DebugInfo.State = "installing-pending-user-action"
	broken := &metal3v1.BareMetalHost{}
	broken.Status.ErrorType, broken.Status.ErrorMessage = metal3v1.RegistrationError, "why"
	for name, c := range map[string]struct {
		object client.Object
		want   string // severity and reason, or empty
	}{
		"a full pool":                  {pool(hive("Ready", "True", "Filled")), ""},
		"a pool that is new":           {pool(nil), "waiting Initialized"},
		"a pool that fills":            {pool(hive("Ready", "False", "Filling")), "waiting Filling"},
		"a pool with kept clusters":    {pool(hive("Ready", "False", "Protected")), "waiting Protected"},
		"a pool that backs off":        {pool(hive("Ready", "False", "BackingOff")), "wrong BackingOff"},
		"a served claim":               {claim(hive("Pending", "False", "ClusterClaimed", "ClusterRunning", "True", "Running")), ""},
		"a claim whose cluster sleeps": {claim(hive("Pending", "False", "ClusterClaimed", "ClusterRunning", "False", "Hibernating")), ""},
		"a claim whose cluster is gone": {
			claim(hive("Pending", "False", "ClusterClaimed", "ClusterRunning", "False", "ClusterDeleted")), "wrong ClusterDeleted",
		},
		"a claim that is given back":     {released, "waiting ClusterDeleting"},
		"a claim in the queue":           {claim(hive("Pending", "True", "NoClusters")), "waiting NoClusters"},
		"a claim without a pool":         {claim(hive("Pending", "True", "PoolNotFound")), "wrong PoolNotFound"},
		"a cluster that installs":        {cluster(hive("Provisioned", "False", "Provisioning")), ""},
		"a cluster that broke":           {cluster(hive("ProvisionStopped", "True", "Failed")), "wrong ProvisionStopped"},
		"a cluster that does not answer": {cluster(hive("Unreachable", "True", "Err")), "wrong Unreachable"},
		"a cluster whose etcd is full":   {cluster(hive("Ready", "False", "StorageFull")), "wrong StorageFull"},
		"a failed installation":          {install(hive("Failed", "True", "InstallationFailed")), "wrong InstallationFailed"},
		"an installation that ended":     {install(hive("Failed", "False", "No", "Stopped", "True", "InstallationCompleted", "Completed", "True", "InstallationCompleted")), ""},
		"an installation that is new":    {install(hive("Ready", "Unknown", "Initialized")), "waiting Initialized"},
		"an installation without machines": {
			install(hive("SpecSynced", "True", "SyncOK", "RequirementsMet", "False", "InsufficientAgents")), "waiting InsufficientAgents",
		},
		"an installation without an image": {install(hive("SpecSynced", "True", "SyncOK", "RequirementsMet", "False", "ClusterNotReady")), "wrong ClusterNotReady"},
		"an installation on hold":          {install(hive("RequirementsMet", "True", "ClusterIsReady", "Completed", "False", "InstallationOnHold")), "waiting InstallationOnHold"},
		"an image":                         {infraEnv(agents("ImageCreated", "True", "ImageCreated")), ""},
		"no image":                         {infraEnv(agents("ImageCreated", "False", "ImageCreationError")), "wrong ImageCreationError"},
		"a silent machine":                 {agent(agents("SpecSynced", "True", "SyncOK", "Connected", "False", "AgentIsDisconnected")), "wrong AgentIsDisconnected"},
		"a machine that restarts into its system": {
			agent(agents("Installed", "True", "InstallationCompleted", "Connected", "False", "AgentIsDisconnected")), "",
		},
		"a machine that is not approved": {agent(agents("Connected", "True", "AgentIsConnected", "RequirementsMet", "False", "AgentIsNotApproved")), "waiting AgentIsNotApproved"},
		"a machine that must be booted":  {agent(leaving("UnbindingPendingUserAction")), "waiting UnbindingPendingUserAction"},
		"a machine that is drained":      {agent(append(leaving("Unbinding"), agents("Released", "False", "Draining")...)), "waiting Draining"},
		"a machine that is bound":        {agent(agents("Connected", "True", "AgentIsConnected", "RequirementsMet", "False", "Binding", "Validated", "False", "Binding")), "waiting Binding"},
		"a machine that booted again":    {misbooted, "waiting InstallationInProgress"},
		"a machine whose installation failed": {
			agent(agents("Installed", "False", "InstallationFailed", "Connected", "False", "AgentIsDisconnected")), "wrong InstallationFailed",
		},
		"a machine that the service lost": {agent(agents("SpecSynced", "Unknown", "NotAvailable", "Connected", "Unknown", "NotAvailable")), "waiting NotAvailable"},
		"a machine without a report":      {agent(agents("Connected", "True", "AgentIsConnected", "Validated", "Unknown", "ValidationsUnknown")), ""},
		"a machine that is not wiped": {
			agent(agents("Connected", "True", "AgentIsConnected", "RequirementsMet", "False", "AgentNotReady", "Bound", "False", "Unbound", "Released", "False", "WipeFailed")), "wrong WipeFailed",
		},
		"a machine that is being wiped": {agent(agents("Connected", "True", "AgentIsConnected", "Released", "False", "Wiping")), "waiting Wiping"},
		"a machine without its address": {agent(agents("Bound", "True", "Bound", "AddressesAssigned", "False", "AddressesMissing")), "waiting AddressesMissing"},
		"a node that is not Ready":      {agent(agents("Installed", "True", "InstallationCompleted", "Joined", "False", "NodeNotReady")), "waiting NodeNotReady"},
		"a machine that is installed":   {agent(agents("Installed", "False", "InstallationInProgress", "Joined", "False", "WaitingForBoot")), ""},
		"machines that are missing": {
			machines(hive("Ready", "False", "MachinesMissing", "MachinesAvailable", "False", "NoSuitableAgents")), "wrong NoSuitableAgents",
		},
		"machines that are being bound":     {machines(hive("Ready", "False", "MachinesMissing", "MachinesAvailable", "False", "Binding")), "waiting Binding"},
		"machines that join":                {machines(hive("Ready", "False", "Joining", "MachinesAvailable", "True", "MachinesBound")), "waiting Joining"},
		"machines that died":                {machines(hive("Ready", "False", "NodesNotReady", "MachinesAvailable", "True", "MachinesBound")), "wrong NodesNotReady"},
		"machines that failed":              {machines(hive("Ready", "False", "MachinesFailed")), "wrong MachinesFailed"},
		"machines that wait for a claim":    {machines(hive("Ready", "True", "WaitingForClaim")), ""},
		"machines of another controller":    {&hivev1.MachinePool{}, ""},
		"a reservation that is new":         {reserved(agents("Ready", "Unknown", "Initialized")), "waiting Initialized"},
		"a reservation that is not met":     {reserved(agents("Ready", "False", "TooFewAgents")), "waiting TooFewAgents"},
		"a reservation that cannot be read": {reserved(agents("Ready", "False", "InvalidSelector")), "wrong InvalidSelector"},
		"a cluster that lost its claim":     {cluster(hive("ClaimMissing", "True", "ClaimDeleted")), "wrong ClaimMissing"},
		"a cluster without its installer":   {cluster(hive("RequirementsMet", "False", "ClusterInstallNotFound")), "wrong ClusterInstallNotFound"},
		"a cluster whose installer waits":   {cluster(hive("RequirementsMet", "False", "ClusterNotReady")), ""},
		"a cluster that does not stop":      {cluster(hive("Hibernating", "False", "FailedToStop")), "wrong FailedToStop"},
		"a cluster that stops":              {cluster(hive("Hibernating", "False", "Stopping", "MachinesStopped", "False", "StoppingMachines")), "waiting StoppingMachines"},
		"a cluster that cannot be removed":  {cluster(hive("Provisioned", "False", "DeprovisionFailed")), "wrong DeprovisionFailed"},
		"a silent Ironic":                   {discovery(standard("Ready", "False", "EndpointUnreachable")), "wrong EndpointUnreachable"},
		"all machines are hosts":            {discovery(standard("Ready", "True", "Discovering")), ""},
		"machines that wait":                {discovery(standard("Ready", "True", "MachinesWaiting")), "waiting MachinesWaiting"},
		"machines that are refused":         {discovery(standard("Ready", "True", "MachinesRefused")), "wrong MachinesRefused"},
		"a selector that fails":             {discovery(standard("Ready", "True", "Discovering", "SelectorEvaluated", "False", "EvaluationFailed")), "wrong EvaluationFailed"},
		"a host":                            {&metal3v1.BareMetalHost{}, ""},
		"a host with an error":              {broken, "wrong registration error"},
		"a host that was handed over":       {found(standard("HandedOver", "True", "HandedOver")), ""},
		"a host without credentials":        {found(standard("HandedOver", "False", "WaitingForCredentials")), ""},
		"a host without its Secret":         {found(standard("HandedOver", "False", "CredentialsNotFound")), "wrong CredentialsNotFound"},
		"a host that is held":               {found(standard("HandedOver", "False", "WaitingForApproval")), "waiting WaitingForApproval"},
		"a managed host":                    {found(standard("HandedOver", "False", "ManagedHere", "Ready", "True", "Available")), ""},
		"a managed host on its way":         {found(standard("HandedOver", "False", "ManagedHere", "Ready", "False", "Inspecting")), ""},
		"a managed host that is held":       {found(standard("HandedOver", "False", "ManagedHere", "Ready", "False", "WaitingForApproval")), "waiting WaitingForApproval"},
		"a managed host that was moved":     {found(standard("HandedOver", "False", "ManagedHere", "Ready", "False", "StatusNotRestored")), "wrong StatusNotRestored"},
		"addresses":                         {addresses(standard("Ready", "True", "Usable", "Exhausted", "False", "AddressesFree")), ""},
		"exhausted":                         {addresses(standard("Ready", "True", "Usable", "Exhausted", "True", "NoAddressFree")), "wrong NoAddressFree"},
		"addresses of two pools":            {addresses(standard("Ready", "True", "Usable", "Exhausted", "False", "AddressesFree", "Overlapping", "True", "RangesOverlap")), "wrong RangesOverlap"},
		"addresses that cool down":          {addresses(standard("Ready", "True", "Usable", "Exhausted", "True", "AddressesCoolDown")), "waiting AddressesCoolDown"},
		"out of range":                      {addresses(standard("Ready", "False", "AddressesOutOfRange")), "wrong AddressesOutOfRange"},
		"a kind of others":                  {&corev1.Pod{}, ""},
		"an address that waits":             {&ipamv1.IPClaim{Status: ipamv1.IPClaimStatus{Conditions: standard("Ready", "False", "PoolExhausted")}}, "waiting PoolExhausted"},
		"one of two addresses":              {&ipamv1.IPClaim{Status: ipamv1.IPClaimStatus{Conditions: standard("Ready", "False", "AddressesPending")}}, "waiting AddressesPending"},
	} {
		t.Run(name, func(t *testing.T) {
			problems := health.Of(c.object)
			if c.want == "" {
				assert.Empty(t, problems)
				return
			}
			require.Len(t, problems, 1)
			assert.Equal(t, c.want, problems[0].Severity.String()+" "+problems[0].Reason)
			assert.NotEmpty(t, problems[0].Message)
		})
	}
}

func TestSort(t *testing.T) {
	now := time.Now()
	problems := []health.Problem{
		{Name: "waits", Severity: health.Waiting, Since: now.Add(-time.Hour)}, {Name: "new", Since: now}, {Name: "old", Since: now.Add(-time.Minute)},
	}
	health.Sort(problems)
	var names []string
	for _, p := range problems {
		names = append(names, p.Name)
	}
	assert.Equal(t, []string{"old", "new", "waits"}, names)
}
