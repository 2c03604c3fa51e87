// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package clusterpool_test

import (
	"context"
	"flag"
	"fmt"
	"net"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-io/muster/apis/faultinject"
	hivev1 "github.com/muster-io/muster/apis/hive/v1"
	"github.com/muster-io/muster/pool-operator/internal/testobj"
)

// Shape of the flow in which the operator is killed: filled, changed, filled again, scaled down, deleted.
const (
	crashSize    = 3
	crashCreated = crashSize + crashSize // all of them are stale once
	crashRunning = 1
	// writesBesideWriter is at how many writes a replica is killed beside a foreign writer, annotatorTick how often that one writes.
	writesBesideWriter = 28
	annotatorTick      = 20 * time.Millisecond
	// cacheLag is by how much caches are late beside the writer, longer than the pause after a conflict.
	cacheLag = 80 * time.Millisecond
)

// TestMain lets more tests run at a time than there are processors: most of their time they wait for the API server.
func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", "8"); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

// TestADeathAtEveryWriteOfAPool kills the operator at the n-th write, for every n of the whole life of a pool, before the write or after it, or lets that write fail. It is started
// again, or another replica is there all the time; what happens alternates from write to write, and MUSTER_CRASH_ALL=1 lets everything happen to every write. In the end everything is as it should be: nothing is left over, and no cluster was created twice.
func TestADeathAtEveryWriteOfAPool(t *testing.T) {
	clean := faultinject.Never()
	var writes int
	t.Run("without a fault", func(t *testing.T) {
		w := newTestEnv(t)
		w.life(func() { w.replica(through(clean)) })
		writes = clean.Calls()
		t.Logf("%d writes: %v", writes, summary(clean))
	})
	if testing.Short() {
		t.Skip("the rest takes a minute")
	}
	kinds := []faultinject.Fault{faultinject.CrashBefore, faultinject.CrashAfter, faultinject.FailOnce}
	for n := 1; n <= writes; n++ {
		for i, kind := range kinds {
			if os.Getenv("MUSTER_CRASH_ALL") == "" && i != n%len(kinds) {
				continue
			}
			second := n%2 == 0
			t.Run(fmt.Sprintf("%s write %d, second replica %v", kind, n, second), func(t *testing.T) {
				t.Parallel()
				w := newTestEnv(t)
				w.life(func() { w.restarting(faultinject.New(n, kind), second) })
			})
		}
	}
}

// TestADeathBesideAWriterThatAnnotatesAllTheTime kills one of two replicas at some writes, while another client annotates pool and clusters all the time: most changes lose a conflict, and
// what wakes the operator is mostly noise. As many clusters run as runningCount says nevertheless.
func TestADeathBesideAWriterThatAnnotatesAllTheTime(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes a minute")
	}
	kinds := []faultinject.Fault{faultinject.CrashBefore, faultinject.CrashAfter, faultinject.FailOnce}
	for n := 1; n <= writesBesideWriter; n += 5 {
		kind := kinds[n%len(kinds)]
		t.Run(fmt.Sprintf("%s write %d", kind, n), func(t *testing.T) {
			t.Parallel()
			w := newTestEnv(t)
			w.lag = cacheLag
			// Each replica has a connection of its own: on one that all share there are more streams at a time than the API server allows.
			w.config.Dial = (&net.Dialer{}).DialContext
			w.annotator("p", n%2 == 0)
			w.life(func() { w.restarting(faultinject.New(n, kind), true) })
		})
	}
}

// annotator changes the pool's clusters again and again until the test ends, and nothing that a decision is made from. With itself, it changes the pool, too, though less often: each
// change makes the next ticket fail, and wakes the operator.
func (w *testEnv) annotator(pool string, itself bool) {
	w.t.Helper()
	ctx, cancel := context.WithCancel(w.t.Context())
	done := make(chan struct{})
	w.t.Cleanup(func() {
		cancel()
		<-done
	})
	annotate := func(round int, objects ...client.Object) {
		patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"annotations":{"other.example.com/was-here":"%d"}}}`, round))
		for _, object := range objects {
			if err := w.client.Patch(ctx, object, patch); err != nil && ctx.Err() == nil && !apierrors.IsNotFound(err) {
				w.t.Errorf("annotating %s: %v", object.GetName(), err)
			}
		}
	}
	go func() {
		defer close(done)
		ticker := time.NewTicker(annotatorTick)
		defer ticker.Stop()
		for round := 0; ; round++ {
			list := &hivev1.ClusterDeploymentList{}
			if w.client.List(ctx, list, client.MatchingLabels{hivev1.LabelClusterPoolNamespace: w.ns, hivev1.LabelClusterPoolName: pool}) == nil {
				for i := range list.Items {
					annotate(round, &list.Items[i])
				}
			}
			if itself && round%8 == 0 {
				annotate(round, &hivev1.ClusterPool{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: pool}})
			}
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
			}
		}
	}()
}

// restarting runs a replica that is started again after it died, beside another one if wanted.
func (w *testEnv) restarting(f *faultinject.Injector, second bool) {
	if second {
		w.replica()
	}
	stop := w.replica(through(f))
	over, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		select {
		case <-f.Dead():
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
func (w *testEnv) life(operate func()) {
	w.t.Helper()
	w.apart = true
	created := w.countCreations()
	w.installer()
	w.create(testobj.Pool("p", testobj.In(w.ns), testobj.Size(crashSize), testobj.RunningCount(crashRunning), testobj.MaxConcurrent(2)))
	operate()
	w.settled("p", crashSize)
	w.runs("p", crashRunning)
	w.create(testobj.ClusterImageSet("next-of-" + w.ns))
	w.editPool("p", testobj.ImageSet("next-of-"+w.ns))
	w.eventually("all clusters are replaced", func() bool {
		pool := w.pool("p")
		return hivev1.IsConditionTrue(pool.Status.Conditions, hivev1.ClusterPoolAllClustersCurrent) && pool.Status.ObservedGeneration == pool.Generation
	})
	w.settled("p", crashSize)
	w.runs("p", crashRunning)
	w.editPool("p", testobj.RunningCount(crashSize))
	w.runs("p", crashSize)
	w.editPool("p", testobj.RunningCount(crashRunning))
	w.runs("p", crashRunning)
	w.editPool("p", testobj.Size(1))
	w.settled("p", 1)
	w.runs("p", crashRunning)
	require.LessOrEqual(w.t, created(), crashCreated, "a cluster was created twice")
	w.remove("p")
}

// runs waits until that many of the pool's clusters are to run.
func (w *testEnv) runs(pool string, want int) {
	w.t.Helper()
	w.eventually("not the right number of clusters runs", func() bool {
		running := 0
		for _, cd := range w.clusters(pool) {
			if cd.Spec.PowerState == hivev1.PowerStateRunning {
				running++
			}
		}
		return running == want
	})
}

// remove deletes the pool and waits until it and everything of it is gone.
func (w *testEnv) remove(name string) {
	w.t.Helper()
	require.NoError(w.t, w.client.Delete(w.t.Context(), w.pool(name)))
	w.eventually("the pool goes", func() bool {
		err := w.client.Get(w.t.Context(), client.ObjectKey{Namespace: w.ns, Name: name}, &hivev1.ClusterPool{})
		return apierrors.IsNotFound(err)
	})
	require.Empty(w.t, w.clusters(name))
	// A replica whose view of what a namespace holds is behind removes the finalizer of the pool without it. It is swept away.
	w.eventually("the namespaces go", func() bool { return len(w.namespaces(name)) == 0 })
	w.eventually("the namespaces end", func() bool {
		list := &corev1.NamespaceList{}
		require.NoError(w.t, w.client.List(w.t.Context(), list, client.MatchingLabels{hivev1.LabelNamespaceClusterPoolNamespace: w.ns}))
		return len(list.Items) == 0
	})
}

// moment is longer than events take.
const moment = 5 * time.Second

// countCreations counts the clusters of the environment that there ever were.
func (w *testEnv) countCreations() func() int {
	w.t.Helper()
	watcher, err := client.NewWithWatch(w.config, client.Options{Scheme: scheme})
	require.NoError(w.t, err)
	watch, err := watcher.Watch(w.t.Context(), &hivev1.ClusterDeploymentList{}, client.MatchingLabels{hivev1.LabelClusterPoolNamespace: w.ns})
	require.NoError(w.t, err)
	w.t.Cleanup(watch.Stop)
	uids := map[types.UID]bool{}
	return func() int {
		enough := time.After(moment) // others may never stop changing clusters
		for {
			select {
			case <-enough:
				return len(uids)
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
