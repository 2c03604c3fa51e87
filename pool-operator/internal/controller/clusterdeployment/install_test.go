// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package clusterdeployment_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	fakeclient "sigs.k8s.io/controller-runtime/pkg/client/fake"

	hivev1 "github.com/muster-io/muster/apis/hive/v1"
	"github.com/muster-io/muster/pool-operator/internal/controller/clusterdeployment"
)

// noInformers counts what is to be watched.
type noInformers struct{ kinds []string }

func (i *noInformers) GetInformer(_ context.Context, object client.Object, _ ...cache.InformerGetOption) (cache.Informer, error) {
	i.kinds = append(i.kinds, object.GetObjectKind().GroupVersionKind().Kind)
	return nil, errors.New("nothing is watched here")
}

// A user who may create a ClusterDeployment would have the operator hold all Secrets of the cluster in memory, or wait for a kind that it may not list.
func TestKindsThatInstallNoClusterAreNeitherReadNorWatched(t *testing.T) {
	for _, ref := range []hivev1.ClusterInstallLocalReference{
		{Group: "", Version: "v1", Kind: "Secret", Name: "x"},
		{Group: "apps", Version: "v1", Kind: "StatefulSet", Name: "x"},
		{Group: "events.k8s.io", Version: "v1", Kind: "Event", Name: "x"},
		{Group: "hive.openshift.io", Version: "v1", Kind: "ClusterClaim", Name: "x"},
	} {
		t.Run(ref.Kind, func(t *testing.T) {
			cluster := newCluster("blue-x", func(c *hivev1.ClusterDeployment) {
				c.Spec.Platform, c.Spec.ClusterInstallRef = hivev1.Platform{None: &runtime.RawExtension{Raw: []byte("{}")}}, &ref
			})
			c := fakeclient.NewClientBuilder().WithScheme(scheme(t)).WithStatusSubresource(&hivev1.ClusterDeployment{}).WithObjects(cluster).Build()
			watched := &noInformers{}
			r := clusterdeployment.NewInstall(clusterdeployment.InstallDeps{
				Client: c, Live: c, Informers: watched, Recorder: events.NewFakeRecorder(10), Clock: &manualClock{now: time.Unix(1, 0)},
			})
			_, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(cluster)})
			require.NoError(t, err)
			assert.Empty(t, watched.kinds)
			require.NoError(t, c.Get(t.Context(), client.ObjectKeyFromObject(cluster), cluster))
			said := hivev1.FindCondition(cluster.Status.Conditions, hivev1.ClusterDeploymentRequirementsMet)
			require.NotNil(t, said)
			assert.Equal(t, hivev1.ReasonClusterInstallNotFound, said.Reason)
			assert.Contains(t, said.Message, "installs no cluster")
		})
	}
}
