// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package clusterpool_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	hivev1 "github.com/muster-io/muster/apis/hive/v1"
	"github.com/muster-io/muster/pool-operator/internal/testobj"
)

// forged is a ClusterDeployment that names the pool, in a namespace of another user.
func (w *testEnv) forged(pool, namespace, name string) *hivev1.ClusterDeployment {
	w.t.Helper()
	cd := &hivev1.ClusterDeployment{ObjectMeta: metav1.ObjectMeta{
		Namespace: namespace, Name: name,
		Labels: map[string]string{"forged": "yes"},
	}}
	cd.Spec.ClusterName, cd.Spec.BaseDomain, cd.Spec.Installed = name, "example.com", true
	cd.Spec.Platform = hivev1.Platform{Hosted: &hivev1.HostedPlatform{}}
	cd.Spec.ClusterPoolRef = &hivev1.ClusterPoolReference{Namespace: w.ns, PoolName: pool}
	w.create(cd)
	return cd
}

// A ClusterDeployment of another user does not count: the pool deletes none of its own as one too many, and does not change it.
func TestAForgedClusterCountsForNothing(t *testing.T) {
	w := newTestEnv(t)
	w.installer()
	stranger := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "stranger-"}}
	w.create(stranger)
	forgeries := []*hivev1.ClusterDeployment{w.forged("p", stranger.Name, stranger.Name), w.forged("p", stranger.Name, "other")}
	w.create(testobj.Pool("p", testobj.In(w.ns), testobj.Size(2)))
	w.replica()
	w.settled("p", 2)
	own := w.clusters("p")
	forgeries = append(forgeries, w.forged("p", own[0].Namespace, "second"))
	w.eventually("the pool publishes an event", func() bool {
		events := &eventsv1.EventList{}
		require.NoError(t, w.client.List(t.Context(), events, client.InNamespace(w.ns)))
		notified := map[string]bool{}
		for _, e := range events.Items {
			if e.Reason == "NotAMember" && e.Related != nil {
				notified[e.Related.Namespace+"/"+e.Related.Name] = true
			}
		}
		return len(notified) == len(forgeries)
	})
	w.editPool("p", func(p *hivev1.ClusterPool) { p.Spec.Size = 3 })
	w.settled("p", 3)
	require.Equal(t, int32(3), w.pool("p").Status.Size)
	for _, cd := range own {
		require.NoError(t, w.client.Get(t.Context(), client.ObjectKeyFromObject(&cd), &cd), "none of its own was one too many")
		require.True(t, cd.DeletionTimestamp.IsZero())
	}
	require.NoError(t, w.client.Delete(t.Context(), forgeries[2]), "a namespace that holds a cluster stays")
	w.editPool("p", func(p *hivev1.ClusterPool) { p.Spec.Size = 0 })
	w.settled("p", 0)
	for _, cd := range forgeries[:2] {
		require.NoError(t, w.client.Get(t.Context(), client.ObjectKeyFromObject(cd), cd), "it belongs to another user")
		require.True(t, cd.DeletionTimestamp.IsZero())
		require.NotEqual(t, hivev1.PowerStateHibernating, cd.Spec.PowerState, "and to switch off")
	}
}
