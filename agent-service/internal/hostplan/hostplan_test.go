// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package hostplan_test

import (
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/muster-io/muster/agent-service/internal/agentproto"
	"github.com/muster-io/muster/agent-service/internal/domain"
	"github.com/muster-io/muster/agent-service/internal/hardware"
	"github.com/muster-io/muster/agent-service/internal/hostplan"
	"github.com/muster-io/muster/agent-service/internal/lifecycle"
	"github.com/muster-io/muster/agent-service/internal/validate"
)

// TestPlansNeedPlansOnly: what is pure does not reach what is not through another package of this module.
func TestPlansNeedPlansOnly(t *testing.T) {
	const module = "github.com/muster-io/muster/agent-service/internal/"
	plans := []string{"agentproto", "allocation", "domain", "firstboot", "hardware", "hostlabels", "hostplan", "join", "lifecycle", "machineplan", "nmstate", "validate"}
	arguments := []string{"list", "-deps"}
	for _, p := range plans {
		arguments = append(arguments, module+p)
	}
	output, err := exec.CommandContext(t.Context(), "go", arguments...).Output()
	require.NoError(t, err)
	for path := range strings.FieldsSeq(string(output)) {
		if name, own := strings.CutPrefix(path, module); own {
			assert.Contains(t, plans, name)
		}
		assert.NotEqual(t, "database/sql", path)
	}
}

func TestOverdue(t *testing.T) {
	limit, back := lifecycle.TimeOuts[lifecycle.Installing], lifecycle.TimeOuts[lifecycle.Reclaiming]
	require.Positive(t, limit)
	require.Positive(t, back)
	for name, c := range map[string]struct {
		state            lifecycle.State
		silent           bool
		inState, inStage time.Duration
		release          domain.Release
		want             lifecycle.Verb
	}{
		"a host that polls":                   {state: lifecycle.KnownUnbound},
		"a host that is silent":               {state: lifecycle.KnownUnbound, silent: true, want: lifecycle.Refresh},
		"a host that is known to be silent":   {state: lifecycle.DisconnectedUnbound, silent: true},
		"an installation that begins in time": {state: lifecycle.Installing, inState: limit - 1, inStage: limit - 1},
		"an installation that does not begin": {state: lifecycle.Installing, inState: limit, inStage: limit, want: lifecycle.TimeOut},
		"an installation with a new stage":    {state: lifecycle.InstallingInProgress, inState: 24 * time.Hour, inStage: time.Minute},
		"a host whose Node is being drained":  {state: lifecycle.Reclaiming, inState: 24 * time.Hour, inStage: 24 * time.Hour, release: domain.Release{NodeName: "n", StartedAt: time.Unix(1, 0)}},
		"a host that left its cluster":        {state: lifecycle.Reclaiming, inState: back - 1, release: domain.Release{NodeName: "n", StartedAt: time.Unix(1, 0), LeftAt: time.Unix(2, 0)}},
		"a host that does not come back": {
			state: lifecycle.Reclaiming, inState: back, release: domain.Release{NodeName: "n", StartedAt: time.Unix(1, 0), LeftAt: time.Unix(2, 0)}, want: lifecycle.TimeOut,
		},
		"a host without a Node does not come back": {state: lifecycle.Reclaiming, inState: back, release: domain.Release{StartedAt: time.Unix(1, 0)}, want: lifecycle.TimeOut},
	} {
		t.Run(name, func(t *testing.T) {
			verb, due := hostplan.Overdue(&domain.Host{State: c.state, MediaConnected: true, Summary: hardware.Summary{Hash: "x"}, Resident: true, Release: c.release}, c.silent, c.inState, c.inStage)
			assert.Equal(t, c.want != "", due)
			if due {
				assert.Equal(t, c.want, verb)
			}
		})
	}
	_, due := hostplan.Overdue(nil, true, 0, 0)
	assert.False(t, due, "a host that was deleted")
}

func TestAPlanRecordsWhatItChanges(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	plan := hostplan.Plan{Now: now, NewStamp: func() string { return "new" }, Rules: hostplan.Rules{Minimums: validate.DefaultMinimums, Connected: func(*domain.Host) bool { return true }}}
	h := &domain.Host{HostKey: domain.HostKey{InfraEnvID: "e", HostID: "1"}, State: lifecycle.DiscoveringUnbound, MediaConnected: true, Stamps: domain.Stamps{Binding: "old"}}
	h.Summary = hardware.Summary{
		Hash: "x", Hostname: "n1", CPUArchitecture: "x86_64", CPUCount: 8, MemoryBytes: 32 << 30, DefaultRoute: true,
		Targets: []hardware.Target{{ID: "a", Path: "/dev/sda", SizeBytes: 200e9}},
	}
	plan.Assess(h, nil, nil)
	assert.Equal(t, lifecycle.KnownUnbound, h.State)
	assert.Equal(t, now, h.StateUpdatedAt)
	require.Len(t, plan.Recorded, 1)
	assert.Equal(t, "host_status_updated", plan.Recorded[0].Name)
	assert.Contains(t, plan.Recorded[0].Message, "n1")

	plan.Assess(h, nil, nil)
	assert.Len(t, plan.Recorded, 1, "without a change there is no new event")

	plan.Silenced = []domain.HostKey{h.HostKey}
	plan.Assess(h, nil, nil)
	assert.Equal(t, lifecycle.DisconnectedUnbound, h.State, "it appeared elsewhere")

	require.NoError(t, plan.Apply(h, lifecycle.Outcome{Effects: []lifecycle.Effect{lifecycle.EndTokens}}, "", false))
	assert.Equal(t, domain.Stamps{Registration: "new", Binding: "new"}, h.Stamps)
}

func TestStepsAreMadeFromWhatIsKnown(t *testing.T) {
	rules := &hostplan.Rules{AgentVersion: "v1.2.0", Minimums: validate.DefaultMinimums, Connected: func(*domain.Host) bool { return true }}
	h := &domain.Host{HostKey: domain.HostKey{InfraEnvID: "e", HostID: "1"}, BootID: "b", AgentVersion: "v1.1.0", ClusterID: "c", State: lifecycle.Known}
	other := &domain.Host{HostKey: domain.HostKey{InfraEnvID: "e", HostID: "2"}, Summary: hardware.Summary{Addresses: []string{"192.0.2.2/24"}, MACAddresses: []string{"m"}}}
	for name, c := range map[string]struct {
		step   agentproto.StepType
		known  hostplan.Known
		want   string
		wanted bool
	}{
		"peers without the host itself": {agentproto.StepConnectivity, hostplan.Known{Members: []*domain.Host{h, other}}, `[{"host_id":"2","nics":[{"name":"","mac":"m","ip_addresses":["192.0.2.2"]}]}]`, true},
		"no other host":                 {agentproto.StepConnectivity, hostplan.Known{Members: []*domain.Host{h}}, "null", false},
		"a newer agent":                 {agentproto.StepUpgradeAgent, hostplan.Known{AgentSum: "abc"}, `{"version":"v1.2.0","architecture":"x86_64","sha256":"abc"}`, true},
		"time servers":                  {agentproto.StepNTP, hostplan.Known{InfraEnv: &domain.InfraEnv{InfraEnvSettings: domain.InfraEnvSettings{AdditionalNTPSources: "t"}}}, `{"ntp_source":"t"}`, true},
		"no registry to ask":            {agentproto.StepImageAvailability, hostplan.Known{}, `{"images":null,"timeout":60}`, false},
	} {
		t.Run(name, func(t *testing.T) {
			arguments, wanted, err := rules.Arguments(h, c.step, c.known)
			require.NoError(t, err)
			assert.Equal(t, []string{c.want}, arguments)
			assert.Equal(t, c.wanted, wanted)
		})
	}
	_, _, err := rules.Arguments(h, agentproto.StepInstall, hostplan.Known{Cluster: &domain.Cluster{ID: "c"}})
	assert.Equal(t, "OSImageUnknown", domain.ReasonOf(err))
}

// What validations wait for is asked for again soon: a replica that asked may be gone with the reply.
func TestAnAgentIsAskedAgainSoonForWhatIsNotKnown(t *testing.T) {
	unknown, known := &domain.Host{}, &domain.Host{Checks: validate.Checks{Domains: map[string]bool{"api": false}, API: validate.Refused, Registry: validate.Passed}}
	for step, later := range map[agentproto.StepType]time.Duration{
		agentproto.StepDomainResolution: 5, agentproto.StepAPIConnectivity: 5, agentproto.StepImageAvailability: 10, agentproto.StepInventory: 1, agentproto.StepLogsGather: 60,
	} {
		assert.Equal(t, later, hostplan.Period(known, step), step)
		assert.Equal(t, later == 60, hostplan.Period(unknown, step) != 1, step)
	}
}

func TestTheImageOfAHost(t *testing.T) {
	rules := hostplan.Rules{OSImages: []agentproto.OSImage{
		{Version: "v1.36.9", CPUArchitecture: "x86_64"}, {Version: "v1.37.1", CPUArchitecture: "x86_64"}, {Version: "v1.37.10", CPUArchitecture: "x86_64"},
		{Version: "v1.37.2", CPUArchitecture: "x86_64"}, {Version: "v1.37.11", CPUArchitecture: "aarch64"}, {Version: "v1.38.0-rc.1"}, {Version: "4.16"},
	}}
	for name, c := range map[string]struct {
		version string
		joins   bool
		want    string
	}{
		"the version of the cluster":                                {version: "v1.37.1", joins: true, want: "v1.37.1"},
		"the newest patch where the version is missing":             {version: "v1.37.5", joins: true, want: "v1.37.10"},
		"a newer patch is as good":                                  {version: "v1.36.2", joins: true, want: "v1.36.9"},
		"a version with another spelling":                           {version: "1.36.9", joins: true, want: "v1.36.9"},
		"another minor is none":                                     {version: "v1.35.1", joins: true},
		"a candidate is no release":                                 {version: "v1.38.0", joins: true},
		"a version that is no release":                              {version: "4.16", joins: true, want: "4.16"},
		"a cluster without a version":                               {joins: true},
		"what is installed with its cluster has the version itself": {version: "v1.37.5"},
	} {
		t.Run(name, func(t *testing.T) {
			cluster := &domain.Cluster{ClusterSettings: domain.ClusterSettings{OpenshiftVersion: c.version, CPUArchitecture: "x86_64"}}
			image, err := rules.Image(cluster, &domain.Host{DayTwo: c.joins})
			if c.want == "" {
				require.ErrorContains(t, err, "there is no image of version")
				return
			}
			require.NoError(t, err)
			assert.Equal(t, c.want, image.Version)
		})
	}
}
