// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package machinepool

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/muster-io/muster/agent-service/internal/controller/precedence"
	"github.com/muster-io/muster/agent-service/internal/domain"
	"github.com/muster-io/muster/agent-service/internal/hardware"
	"github.com/muster-io/muster/agent-service/internal/hostplan"
	"github.com/muster-io/muster/agent-service/internal/machineplan"
	agentv1 "github.com/muster-io/muster/apis/agentinstall/v1beta1"
	hivev1 "github.com/muster-io/muster/apis/hive/v1"
)

// A policy refuses more Agents than a pass tries, and all of them come before one that it lets through.
func TestManyAgentsThatAreRefusedKeepNoOtherFromThePool(t *testing.T) {
	clock := clocktesting.NewFakePassiveClock(time.Now())
	number := 0
	api := interceptor.NewClient(fake.NewClientBuilder().WithScheme(newScheme(t)).Build(), interceptor.Funcs{
		Patch: func(_ context.Context, _ client.WithWatch, object client.Object, _ client.Patch, _ ...client.PatchOption) error {
			if strings.HasPrefix(object.GetName(), "refused") {
				number++
				return apierrors.NewForbidden(schema.GroupResource{Resource: "agents"}, object.GetName(), nil)
			}
			return nil
		},
	})
	r := New(Deps{
		Client: api, Live: api, Service: &service{}, Rules: &hostplan.Rules{OSImages: images}, Recorder: &events.FakeRecorder{}, Order: &precedence.Order{Clock: clock}, Clock: clock,
	})
	pool := &hivev1.MachinePool{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "p"}, Spec: hivev1.MachinePoolSpec{
		Replicas: ptr.To[int64](1), Platform: hivev1.MachinePoolPlatform{AgentBareMetal: &hivev1.AgentBareMetalMachinePool{}},
	}}
	d := machineplan.Decision{Take: 1}
	agents := map[string]*agentv1.Agent{}
	add := func(name string) {
		d.Candidates = append(d.Candidates, machineplan.Machine{Name: name})
		agents[name] = &agentv1.Agent{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: name, ResourceVersion: "1"}}
	}
	for i := range 2*maxRefused + 10 {
		add(fmt.Sprintf("refused-%d", i))
	}
	add("other")
	pass := func() ([]string, error) {
		cluster := &hivev1.ClusterDeployment{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "c"}}
		cluster.Spec.ClusterInstallRef = &hivev1.ClusterInstallLocalReference{}
		return r.take(t.Context(), &snapshot{key: client.ObjectKeyFromObject(pool), pool: pool, cluster: cluster, agents: agents}, d)
	}
	for range 2 {
		taken, err := pass()
		require.ErrorContains(t, err, "binding Agent refused-")
		assert.Empty(t, taken)
		clock.SetTime(clock.Now().Add(time.Second))
	}
	taken, err := pass()
	require.NoError(t, err)
	assert.Equal(t, []string{"other"}, taken)
	assert.Equal(t, 2*maxRefused+10, number, "each once")

	t.Run("a refusal is forgotten after a time, and with its pool", func(t *testing.T) {
		key := client.ObjectKeyFromObject(pool)
		assert.Equal(t, "other", r.refusals.last(key, d.Candidates, clock.Now())[0].Name)
		assert.Equal(t, "refused-0", d.Candidates[0].Name, "the decision stays as it is")
		clock.SetTime(clock.Now().Add(refusalAge))
		assert.Equal(t, d.Candidates, r.refusals.last(key, d.Candidates, clock.Now()))
		r.refusals.add(key, "refused-0", clock.Now())
		_, err := r.take(t.Context(), &snapshot{key: key, pool: pool}, machineplan.Decision{})
		require.NoError(t, err)
		assert.Empty(t, r.refusals.at, "the pool lacks no machines")
	})
}

// More machines than a pass tries are ones that no image is for, and all of them come before one that can join. That is no error: it would be told of again and again.
func TestManyMachinesThatCannotJoinKeepNoOtherFromThePool(t *testing.T) {
	clock := clocktesting.NewFakePassiveClock(time.Now())
	api := interceptor.NewClient(fake.NewClientBuilder().WithScheme(newScheme(t)).Build(), interceptor.Funcs{
		Patch: func(context.Context, client.WithWatch, client.Object, client.Patch, ...client.PatchOption) error {
			return nil
		},
	})
	known := &service{hosts: map[string]domain.Host{}}
	r := New(Deps{
		Client: api, Live: api, Service: known, Rules: &hostplan.Rules{OSImages: images}, Recorder: &events.FakeRecorder{}, Order: &precedence.Order{Clock: clock}, Clock: clock,
	})
	pool := &hivev1.MachinePool{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "p"}, Spec: hivev1.MachinePoolSpec{
		Replicas: ptr.To[int64](1), Platform: hivev1.MachinePoolPlatform{AgentBareMetal: &hivev1.AgentBareMetalMachinePool{}},
	}}
	cluster := &hivev1.ClusterDeployment{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "c"}}
	cluster.Spec.ClusterInstallRef = &hivev1.ClusterInstallLocalReference{}
	seen := &snapshot{key: client.ObjectKeyFromObject(pool), pool: pool, cluster: cluster, agents: map[string]*agentv1.Agent{}}
	d := machineplan.Decision{Take: 1}
	for i := range maxRefused + 11 {
		name := fmt.Sprintf("arm-%d", i)
		if i == maxRefused+10 {
			name = "intel"
		} else {
			known.hosts[name] = domain.Host{Summary: hardware.Summary{CPUArchitecture: "aarch64"}}
		}
		d.Candidates = append(d.Candidates, machineplan.Machine{Name: name})
		seen.agents[name] = &agentv1.Agent{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: name, ResourceVersion: "1"}}
	}
	taken, err := r.take(t.Context(), seen, d)
	require.NoError(t, err)
	assert.Empty(t, taken)
	assert.Len(t, seen.notTaken, maxRefused)
	seen.notTaken = nil
	taken, err = r.take(t.Context(), seen, d)
	require.NoError(t, err)
	assert.Equal(t, []string{"intel"}, taken)
}
