// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package clusterpool_test

import (
	"flag"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	hivev1 "github.com/muster-io/muster/apis/hive/v1"
	"github.com/muster-io/muster/pool-operator/internal/testobj"
)

// Shape of the flow in which the operator is killed: filled, changed, filled again, scaled down, deleted.
const (
	crashSize    = 3
	crashCreated = crashSize + crashSize // all of them are stale once
)

// TestMain lets more tests run at a time than there are processors: most of their time they wait for the API server.
func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", "8"); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

// TestCrashAtEveryWrite kills the operator at the n-th write, for every n of the whole life of a pool, before the write or after it, or lets that write fail. It is started
// again, or another replica is there all the time; what happens alternates from write to write, and MUSTER_CRASH_ALL=1 lets everything happen to every write. In the end everything is as it should be: nothing is left over, and no cluster was created twice.
func TestCrashAtEveryWrite(t *testing.T) {
	clean := newTransport(failsOnce, 0)
	var writes int
	t.Run("without a fault", func(t *testing.T) {
		w := newWorld(t)
		w.life(func() { w.replica(clean.wrap) })
		writes = int(clean.writes.Load())
		t.Logf("%d writes: %v", writes, clean.summary())
	})
	if testing.Short() {
		t.Skip("the rest takes a minute")
	}
	kinds := []fault{killedBefore, killedAfter, failsOnce}
	for n := 1; n <= writes; n++ {
		for i, kind := range kinds {
			if os.Getenv("MUSTER_CRASH_ALL") == "" && i != n%len(kinds) {
				continue
			}
			second := n%2 == 0
			t.Run(fmt.Sprintf("%s write %d, second replica %v", kind, n, second), func(t *testing.T) {
				t.Parallel()
				w := newWorld(t)
				w.life(func() { w.mortal(newTransport(kind, n), second) })
			})
		}
	}
}

// mortal runs a replica that is started again after it died, beside another one if wanted.
func (w *world) mortal(f *transport, second bool) {
	if second {
		w.replica()
	}
	stop := w.replica(f.wrap)
	over, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		select {
		case <-f.died:
			stop()
		case <-over:
			return
		}
		if !second {
			w.replica()
		}
	}()
	w.t.Cleanup(func() {
		close(over)
		<-ended
	})
}

// life is the whole life of a pool.
func (w *world) life(operate func()) {
	w.t.Helper()
	created := w.countCreations()
	w.installer()
	w.create(testobj.Pool("p", testobj.In(w.ns), testobj.Size(crashSize), testobj.RunningCount(1), testobj.MaxConcurrent(2)))
	operate()
	w.settled("p", crashSize)
	w.create(testobj.ClusterImageSet("next-of-" + w.ns))
	w.editPool("p", testobj.ImageSet("next-of-"+w.ns))
	w.eventually("all clusters are replaced", func() bool {
		pool := w.pool("p")
		return hivev1.IsConditionTrue(pool.Status.Conditions, hivev1.ClusterPoolAllClustersCurrent) && pool.Status.ObservedGeneration == pool.Generation
	})
	w.settled("p", crashSize)
	w.editPool("p", testobj.Size(1))
	w.settled("p", 1)
	require.LessOrEqual(w.t, created(), crashCreated, "a cluster was created twice")
	w.remove("p")
}

// remove deletes the pool and waits until it and everything of it is gone.
func (w *world) remove(name string) {
	w.t.Helper()
	require.NoError(w.t, w.client.Delete(w.t.Context(), w.pool(name)))
	w.eventually("the pool goes", func() bool {
		err := w.client.Get(w.t.Context(), client.ObjectKey{Namespace: w.ns, Name: name}, &hivev1.ClusterPool{})
		return apierrors.IsNotFound(err)
	})
	require.Empty(w.t, w.clusters(name))
	// A replica whose view of what a namespace holds is behind lets the pool go without it. It is swept away.
	w.eventually("the namespaces go", func() bool { return len(w.namespaces(name)) == 0 })
}

// countCreations counts the clusters of the world that there ever were.
func (w *world) countCreations() func() int {
	w.t.Helper()
	watcher, err := client.NewWithWatch(w.config, client.Options{Scheme: scheme})
	require.NoError(w.t, err)
	watch, err := watcher.Watch(w.t.Context(), &hivev1.ClusterDeploymentList{}, client.MatchingLabels{hivev1.LabelClusterPoolNamespace: w.ns})
	require.NoError(w.t, err)
	w.t.Cleanup(watch.Stop)
	uids := map[types.UID]bool{}
	return func() int {
		for {
			select {
			case event := <-watch.ResultChan():
				if cd, ok := event.Object.(*hivev1.ClusterDeployment); ok {
					uids[cd.UID] = true
				}
			case <-time.After(200 * time.Millisecond):
				return len(uids)
			}
		}
	}
}
