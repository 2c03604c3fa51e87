// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package gitops_test asks of objects what tools ask that wait for what they have applied: kstatus, by which Flux, Argo CD and others tell whether an object is as it should be.
package gitops_test

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/cli-utils/pkg/kstatus/status"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	agentv1 "github.com/muster-io/muster/apis/agentinstall/v1beta1"
	"github.com/muster-io/muster/e2e/environment"
	"github.com/muster-io/muster/e2e/render"
)

const (
	patience = 3 * time.Minute
	interval = 200 * time.Millisecond
)

func TestMain(m *testing.M) {
	log.SetLogger(logr.Discard())
	os.Exit(m.Run())
}

// current are the kinds of samples that are as they should be as soon as they are there, and why.
var current = map[string]string{
	"Namespace": "Kubernetes serves it", "Secret": "it has no status", "ServiceAccount": "it has no status",
	"ClusterImageSet":   "it names an image, and no controller does anything for it",
	"ClusterDeployment": "controllers of other projects install some, and need not write Ready; the AgentClusterInstall of one says how far it is",
}

// waiting are the kinds whose samples are not Ready in an environment without machines and their credentials: they wait for what their condition says.
var waiting = map[string]bool{
	"AgentClusterInstall": true, "AgentReservation": true, "BareMetalHostDiscovery": true, "ClusterClaim": true, "ClusterDeployment": true, "ClusterPool": true, "InfraEnv": true,
}

// An object that no controller has looked at is in progress, and not in order: a tool that waits for it waits for its controller.
func TestNothingIsInOrderBeforeItsOperatorHasLookedAtIt(t *testing.T) {
	if testing.Short() {
		t.Skip("needs a control plane")
	}
	local, err := environment.NewLocal(t.Context(), environment.LocalOptions{UnsafeNoFsync: true, Prepared: true})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, local.Close(context.WithoutCancel(t.Context()))) })
	admin, err := environment.Config(local)
	require.NoError(t, err)
	user, err := client.New(admin, client.Options{})
	require.NoError(t, err)

	objects := samples(t)
	require.NoError(t, render.Apply(t.Context(), admin, objects))
	kinds := map[string]bool{}
	for _, object := range objects {
		kinds[object.GetKind()] = true
		want := status.InProgressStatus
		if current[object.GetKind()] != "" {
			want = status.CurrentStatus
		}
		result := computed(t, user, object)
		assert.Equal(t, want, result.Status, "%s %s: %s", object.GetKind(), object.GetName(), result.Message)
	}
	for kind := range current {
		assert.True(t, kinds[kind], "no sample is a %s: remove it from the exceptions", kind)
	}

	for _, operator := range environment.All() {
		require.NoError(t, local.StartOperator(t.Context(), operator))
	}
	for _, object := range objects {
		require.EventuallyWithT(t, func(c *assert.CollectT) {
			result := computed(c, user, object)
			if waiting[object.GetKind()] {
				assert.NotEqual(c, agentv1.ReasonInitialized, reason(object), result.Message)
				assert.Positive(c, observed(object), result.Message)
				return
			}
			assert.Equal(c, status.CurrentStatus, result.Status, "%s %s: %s", object.GetKind(), object.GetName(), result.Message)
		}, patience, interval)
	}
	require.NoError(t, local.Failed())
}

// samples are those of all operators, with a reservation, and with a pool that makes as few clusters as it can.
func samples(t *testing.T) []*unstructured.Unstructured {
	t.Helper()
	var objects []*unstructured.Unstructured
	for _, directory := range []string{"deploy/samples", "deploy/samples/agent", "deploy/samples/discovery", "deploy/samples/ipam"} {
		found, err := render.Directory(directory)
		require.NoError(t, err)
		objects = append(objects, found...)
	}
	for _, object := range objects {
		if object.GetKind() == "ClusterPool" {
			for field, value := range map[string]int64{"size": 0, "runningCount": 0, "maxSize": 1} {
				require.NoError(t, unstructured.SetNestedField(object.Object, value, "spec", field))
			}
		}
	}
	reservation := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"count": int64(1)}}}
	reservation.SetGroupVersionKind(agentv1.GroupVersion.WithKind("AgentReservation"))
	reservation.SetNamespace("edge")
	reservation.SetName("training")
	return append(objects, reservation)
}

// computed reads an object, and says what kstatus makes of it.
func computed(t require.TestingT, user client.Client, object *unstructured.Unstructured) *status.Result {
	found := &unstructured.Unstructured{}
	found.SetGroupVersionKind(object.GroupVersionKind())
	require.NoError(t, user.Get(context.Background(), client.ObjectKeyFromObject(object), found))
	found.DeepCopyInto(object)
	result, err := status.Compute(found)
	require.NoError(t, err)
	return result
}

// reason is that of the condition Ready, empty without one.
func reason(object *unstructured.Unstructured) string {
	conditions, _, _ := unstructured.NestedSlice(object.Object, "status", "conditions")
	for _, c := range conditions {
		if condition, ok := c.(map[string]any); ok && condition["type"] == "Ready" {
			text, _ := condition["reason"].(string)
			return text
		}
	}
	return ""
}

// observed is the generation that a controller has looked at; 1 for a kind that does not say it.
func observed(object *unstructured.Unstructured) int64 {
	generation, found, _ := unstructured.NestedInt64(object.Object, "status", "observedGeneration")
	if !found {
		return 1
	}
	return generation
}
