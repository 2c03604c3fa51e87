// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/muster-io/muster/agent-service/internal/domain"
	"github.com/muster-io/muster/agent-service/internal/hardware"
	"github.com/muster-io/muster/agent-service/internal/lifecycle"
	"github.com/muster-io/muster/agent-service/internal/validate"
	agentv1 "github.com/muster-io/muster/apis/agentinstall/v1beta1"
)

// arrived is an Agent of a rack as a watch brings it: all that it says is in memory for it alone.
func arrived(t *testing.T, number int) *agentv1.Agent {
	t.Helper()
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	flags := []string{"fpu", "vmx", "avx", "avx2"}
	machine := hardware.Inventory{
		Hostname: fmt.Sprintf("host-%d", number), CPU: hardware.CPU{Architecture: "x86_64", Count: 16, ModelName: "EPYC", Flags: flags}, SystemVendor: hardware.SystemVendor{Manufacturer: "Muster", SerialNumber: fmt.Sprint(number)},
		Disks:      []hardware.Disk{{Name: "sda", Path: "/dev/sda", Serial: fmt.Sprint(number), DriveType: "SSD", Model: "Fast", InstallationEligibility: hardware.Eligibility{NotEligibleReasons: []string{"too small"}}}},
		Interfaces: []hardware.Interface{{Name: "eno1", MACAddress: fmt.Sprintf("52:54:00:00:00:%02x", number), Flags: []string{"up", "broadcast"}, IPV4Addresses: []string{fmt.Sprintf("10.0.0.%d/24", number)}}},
		GPUs:       []hardware.GPU{{Name: "A100", Vendor: "NVIDIA"}},
	}
	agent := &agentv1.Agent{
		TypeMeta: metav1.TypeMeta{Kind: "Agent", APIVersion: agentv1.GroupVersion.String()},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "metal", Name: fmt.Sprintf("agent-%d", number), UID: types.UID(fmt.Sprintf("uid-%d", number)), Finalizers: []string{agentv1.AgentFinalizer}, Labels: map[string]string{agentv1.InfraEnvLabel: "rack"},
			Annotations: map[string]string{agentv1.InventoryVersionAnnotation: agentv1.InventoryVersion}, OwnerReferences: []metav1.OwnerReference{{Kind: infraEnvKind, Name: "rack", UID: "e"}},
			ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "agent-service"}},
		},
		Spec: agentv1.AgentSpec{Role: domain.AutoAssign, ClusterDeploymentName: &agentv1.ClusterReference{Namespace: "tenant", Name: "c"}},
	}
	host := &domain.Host{
		HostKey: domain.HostKey{InfraEnvID: "e", HostID: fmt.Sprint(number)}, State: lifecycle.Known, StateInfo: "Host is ready", Summary: hardware.Summary{Hash: "x"}, InventoryAt: now,
		Progress: domain.Progress{Stage: lifecycle.StageDone, StageStartedAt: now, StageUpdatedAt: now}, NTPSources: []validate.NTPSource{{Name: "time.example.com", State: "synced"}},
		Validations: []validate.Result{
			{ID: "has-min-memory", Category: "hardware", Status: validate.Success, Message: "The host has enough memory"}, {ID: "hostname-valid", Category: "hardware", Status: validate.Success, Message: fmt.Sprintf("Hostname host-%d is allowed", number)},
		},
	}
	reported := translate(&machine)
	reported.ReportTime = new(metav1.NewTime(now))
	agent.Status = status(&snapshot{agent: agent, host: host, inventory: reported}, "http://muster", metav1.NewTime(now))
	text, err := json.Marshal(agent)
	require.NoError(t, err)
	read := &agentv1.Agent{}
	require.NoError(t, json.Unmarshal(text, read))
	return read
}

func TestACacheKeepsAllOfAnAgentButManagedFields(t *testing.T) {
	transform := Transform()
	for number := range 3 {
		want := arrived(t, number)
		want.ManagedFields = nil
		got, err := transform(arrived(t, number))
		require.NoError(t, err)
		assert.Equal(t, want, got)
	}
}

func TestACacheKeepsOnceWhatAgentsHaveInCommon(t *testing.T) {
	transform := Transform()
	both := make([]*agentv1.Agent, 2)
	for i := range both {
		got, err := transform(arrived(t, i))
		require.NoError(t, err)
		both[i] = got.(*agentv1.Agent)
	}
	one, other := both[0], both[1]
	for name, of := range map[string]func(*agentv1.Agent) string{
		"label":           func(a *agentv1.Agent) string { return a.Labels[agentv1.InfraEnvLabel] },
		"finalizer":       func(a *agentv1.Agent) string { return a.Finalizers[0] },
		"message":         func(a *agentv1.Agent) string { return a.Status.Conditions[0].Message },
		"reason":          func(a *agentv1.Agent) string { return a.Status.Conditions[0].Reason },
		"validation":      func(a *agentv1.Agent) string { return a.Status.ValidationsInfo["hardware"][0].Message },
		"stage":           func(a *agentv1.Agent) string { return a.Status.Progress.ProgressStages[0] },
		"flag of the CPU": func(a *agentv1.Agent) string { return a.Status.Inventory.CPU.Flags[1] },
		"model of a disk": func(a *agentv1.Agent) string { return a.Status.Inventory.Disks[0].Model },
		"flag of a card":  func(a *agentv1.Agent) string { return a.Status.Inventory.Interfaces[0].Flags[0] },
	} {
		assert.NotEmpty(t, of(one), name)
		assert.Same(t, unsafe.StringData(of(one)), unsafe.StringData(of(other)), name)
	}
	assert.Same(t, &one.Status.Inventory.CPU.Flags[0], &other.Status.Inventory.CPU.Flags[0], "a list as a whole")
	assert.NotEqual(t, one.Status.Inventory.Hostname, other.Status.Inventory.Hostname)
}

func TestACacheKeepsWhatIsNoAgentAsItIs(t *testing.T) {
	gone := cache.DeletedFinalStateUnknown{Key: "metal/a"}
	got, err := Transform()(gone)
	require.NoError(t, err)
	assert.Equal(t, gone, got)
}
