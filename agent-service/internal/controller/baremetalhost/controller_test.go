// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package baremetalhost

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	agentv1 "github.com/muster-io/muster/apis/agentinstall/v1beta1"
	metal3v1 "github.com/muster-io/muster/apis/metal3/v1alpha1"
)

// indexer registers the indexes with a fake client.
type indexer struct{ *fake.ClientBuilder }

// IndexField implements client.FieldIndexer.
func (i indexer) IndexField(_ context.Context, obj client.Object, field string, of client.IndexerFunc) error {
	i.WithIndex(obj, field, of)
	return nil
}

// An API server refuses an event whose note has more than 1,024 bytes, and nothing else says what a user has to mend.
func TestAHostSaysWhatToDoWhateverTheNumberOfItsAgents(t *testing.T) {
	scheme := runtime.NewScheme()
	require.NoError(t, agentv1.AddToScheme(scheme))
	require.NoError(t, metal3v1.AddToScheme(scheme))
	labels := map[string]string{agentv1.InfraEnvLabel: "rack"}
	host := &metal3v1.BareMetalHost{
		ObjectMeta: metav1.ObjectMeta{Namespace: "metal", Name: "node-1", Labels: labels}, Spec: metal3v1.BareMetalHostSpec{BootMACAddress: "52:54:00:00:00:01"},
	}
	builder := fake.NewClientBuilder().WithScheme(scheme).WithObjects(host, &agentv1.InfraEnv{ObjectMeta: metav1.ObjectMeta{Namespace: "metal", Name: "rack"}})
	require.NoError(t, Index(t.Context(), indexer{builder}))
	for i := range 50 {
		agent := &agentv1.Agent{ObjectMeta: metav1.ObjectMeta{Namespace: "metal", Name: fmt.Sprintf("00000000-0000-0000-0000-%012d", i), Labels: labels}}
		agent.Status.Inventory.Interfaces = []agentv1.Interface{{MacAddress: "52:54:00:00:00:01"}}
		builder.WithObjects(agent)
	}
	recorder := events.NewFakeRecorder(1)
	_, err := New(Deps{Client: builder.Build(), Recorder: recorder}).Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(host)})
	require.NoError(t, err)
	said := <-recorder.Events
	assert.Contains(t, said, "set the label "+agentv1.BareMetalHostLabel+"=node-1 on the right one")
	assert.LessOrEqual(t, len(said), len("Warning AmbiguousMachine ")+1024)
}
