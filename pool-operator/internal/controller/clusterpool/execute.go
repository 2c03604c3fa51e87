// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package clusterpool

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/log"

	hivev1 "github.com/muster-io/muster/apis/hive/v1"
	"github.com/muster-io/muster/apis/outcome"
	"github.com/muster-io/muster/pool-operator/internal/poolplan"
	"github.com/muster-io/muster/pool-operator/internal/requeue"
)

var (
	// errOldPool says that the pool changed since it was read.
	errOldPool = errors.New("the pool changed since it was read")
	// errNotOurs says that a namespace of the name of a new cluster does not belong to the pool.
	errNotOurs = errors.New("the namespace exists and is not one of this pool")
)

// execute does what was decided, as far as there are writers free. A failed action does not stop the others. again is when to plan again because something was lost
// against another writer.
func (r *Reconciler) execute(ctx context.Context, p *pass, actions []poolplan.Action, hold bool) (again time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, passTimeout)
	defer cancel()
	var (
		mu   sync.Mutex
		errs []error
		wait sync.WaitGroup
		// skipped says that the view is behind what this process did or lost.
		skipped bool
	)
	for _, a := range urgentFirst(actions) {
		switch r.skipped(p, a, hold) {
		case skipSeenLater:
			skipped = true
			continue
		case skipWithoutTicket, skipDone:
			continue
		case carryOut:
		}
		if urgency(a) > 0 {
			r.yield(ctx, p)
		}
		select {
		case r.free <- struct{}{}:
		case <-ctx.Done():
			wait.Wait()
			return again, errors.Join(append(errs, fmt.Errorf("waiting for a writer: %w", ctx.Err()))...)
		}
		wait.Go(func() {
			defer func() { <-r.free }()
			err := r.do(ctx, p, a)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case apierrors.IsConflict(err):
				again = outcome.Delay()
				log.FromContext(ctx).V(1).Info("lost an object to another writer and will plan again", "action", fmt.Sprintf("%T", a), "why", a.Reason())
			case err != nil:
				errs = append(errs, err)
			}
		})
	}
	wait.Wait()
	return requeue.Sooner(again, r.afterSkip(p, skipped)), errors.Join(errs...)
}

// Delays of a pass that skipped an action because of what this process remembers.
const (
	shortestSkip = 50 * time.Millisecond
	longestSkip  = 5 * time.Second
)

// afterSkip is when to plan again after an action was skipped because of memory; 0 when none was. The change of the object that ends the skip may be one that causes no pass, such as an
// annotation of another client, so that the pass asks for the next one itself. The delay doubles while the cache stays behind.
func (r *Reconciler) afterSkip(p *pass, skipped bool) (delay time.Duration) {
	r.memory.change(func() {
		if !skipped {
			p.memory.skips = 0
			return
		}
		delay = min(longestSkip, shortestSkip<<min(p.memory.skips, 10))
		p.memory.skips++
	})
	return delay
}

// urgentFirst puts actions first that claims wait for: clusters that wake up.
func urgentFirst(actions []poolplan.Action) []poolplan.Action {
	out := slices.Clone(actions)
	slices.SortStableFunc(out, func(a, b poolplan.Action) int { return cmp.Compare(urgency(a), urgency(b)) })
	return out
}

func urgency(a poolplan.Action) int {
	if power, ok := a.(poolplan.SetPower); ok && power.Power == hivev1.PowerStateRunning {
		return 0
	}
	return 1
}

// skip says whether an action is carried out now, and if not why.
type skip int

const (
	carryOut skip = iota
	// skipWithoutTicket: the action needs the newest ticket, whose write has its own time.
	skipWithoutTicket
	// skipDone: this process carried out the recorded operation; the plan looks at outstanding operations again by itself.
	skipDone
	// skipSeenLater: this process did it, or lost it to another writer, on this very version of its object.
	skipSeenLater
)

// skipped says whether an action is not to be carried out now.
func (r *Reconciler) skipped(p *pass, a poolplan.Action, hold bool) (out skip) {
	r.memory.change(func() {
		switch {
		case ticketed(a) && !hold:
			out = skipWithoutTicket
		case !p.memory.recently(a, r.Clock.Now()):
			out = carryOut
		case operationKey(a) != "":
			out = skipDone
		default:
			out = skipSeenLater
		}
	})
	return out
}

// do carries out one action.
func (r *Reconciler) do(ctx context.Context, p *pass, a poolplan.Action) error {
	var (
		kind string
		err  error
	)
	switch a := a.(type) {
	case poolplan.HoldPool:
		kind, err = "HoldPool", r.setFinalizer(ctx, p.pool, true)
	case poolplan.ReleasePool:
		kind, err = "ReleasePool", r.releasePool(ctx, p.pool)
	case poolplan.CreateCluster:
		kind, err = "CreateCluster", r.createCluster(ctx, p, a)
	case poolplan.DeleteCluster:
		kind, err = "DeleteCluster", r.deleteCluster(ctx, p, a)
	case poolplan.WithdrawCluster:
		kind, err = "WithdrawCluster", r.withdrawCluster(ctx, p, a)
	case poolplan.SetPower:
		kind, err = "SetPower", r.setPower(ctx, p, a)
	case poolplan.DeleteNamespace:
		kind, err = "DeleteNamespace", r.deleteNamespace(ctx, a)
	}
	r.Meter.Action(kind, a.Reason(), err != nil && !apierrors.IsConflict(err))
	_, power := a.(poolplan.SetPower)
	if err == nil || (power && apierrors.IsConflict(err)) {
		r.memory.change(func() { p.memory.remember(a, r.Clock.Now()) })
	}
	return err
}

func (r *Reconciler) setFinalizer(ctx context.Context, pool *hivev1.ClusterPool, on bool) error {
	next := pool.DeepCopy()
	if on {
		controllerutil.AddFinalizer(next, hivev1.FinalizerClusterPool)
	} else {
		controllerutil.RemoveFinalizer(next, hivev1.FinalizerClusterPool)
	}
	err := r.Client.Patch(ctx, next, client.MergeFromWithOptions(pool, client.MergeFromWithOptimisticLock{}), client.FieldOwner(FieldOwner))
	if err = outcome.IgnoreGone(err); err != nil {
		return fmt.Errorf("changing finalizers of pool %s/%s: %w", pool.Namespace, pool.Name, err)
	}
	return nil
}

// releasePool removes the pool's finalizer. It first asks the API server whether a cluster is left: no controller would remove that afterwards. One that only carries the pool's labels does not
// belong to it.
func (r *Reconciler) releasePool(ctx context.Context, pool *hivev1.ClusterPool) error {
	clusters := &hivev1.ClusterDeploymentList{}
	err := r.Live.List(ctx, clusters, client.MatchingLabels{hivev1.LabelClusterPoolNamespace: pool.Namespace, hivev1.LabelClusterPoolName: pool.Name})
	if err != nil {
		return fmt.Errorf("looking for clusters of pool %s/%s: %w", pool.Namespace, pool.Name, err)
	}
	for i := range clusters.Items {
		member, err := r.isMember(ctx, pool, &clusters.Items[i])
		if err != nil {
			return err
		}
		if member {
			return apierrors.NewConflict(hivev1.GroupVersion.WithResource("clusterpools").GroupResource(), pool.Name, errOldPool)
		}
	}
	return r.setFinalizer(ctx, pool, false)
}

// deleteCluster deletes a ClusterDeployment as it was seen. One that is gone is fine.
func (r *Reconciler) deleteCluster(ctx context.Context, p *pass, a poolplan.DeleteCluster) error {
	cd := &hivev1.ClusterDeployment{ObjectMeta: metav1.ObjectMeta{Namespace: a.Namespace, Name: a.Name}}
	err := r.writeAsSeen(ctx, p, a.Namespace, a.ResourceVersion, func(version string) error {
		return r.Client.Delete(ctx, cd, client.Preconditions{UID: &a.UID, ResourceVersion: &version})
	})
	if err = outcome.IgnoreGone(err); err != nil {
		return fmt.Errorf("deleting cluster %s: %w", a.Namespace, err)
	}
	log.FromContext(ctx).Info("deleted cluster", "ClusterDeployment", a.Namespace, "why", a.Why)
	if !a.Replay {
		r.event(p.pool, cd, a.Why, "DeleteCluster", "Deleted cluster "+a.Name)
	}
	return nil
}

// withdrawCluster asks the API server whether a cluster that was refused exists after all. If so, it will come into view and is dealt with as any other.
func (r *Reconciler) withdrawCluster(ctx context.Context, p *pass, a poolplan.WithdrawCluster) error {
	cd := &metav1.PartialObjectMetadata{}
	cd.SetGroupVersionKind(hivev1.GroupVersion.WithKind("ClusterDeployment"))
	err := r.Live.Get(ctx, client.ObjectKey{Namespace: a.Namespace, Name: a.Namespace}, cd)
	switch {
	case outcome.IsGone(err):
		r.memory.change(func() { p.memory.absent[a.Namespace] = true })
	case err != nil:
		return fmt.Errorf("looking for withdrawn cluster %s: %w", a.Namespace, err)
	}
	return apierrors.NewConflict(hivev1.GroupVersion.WithResource("clusterpools").GroupResource(), p.pool.Name, errOldPool)
}

// setPower changes spec.powerState and nothing else, of the ClusterDeployment as it was seen.
func (r *Reconciler) setPower(ctx context.Context, p *pass, a poolplan.SetPower) error {
	cd := &hivev1.ClusterDeployment{ObjectMeta: metav1.ObjectMeta{Namespace: a.Namespace, Name: a.Name}}
	err := r.writeAsSeen(ctx, p, a.Namespace, a.ResourceVersion, func(version string) error {
		patch, err := json.Marshal(map[string]any{
			"metadata": map[string]any{"uid": a.UID, "resourceVersion": version},
			"spec":     map[string]any{"powerState": a.Power},
		})
		if err != nil {
			return err
		}
		return r.Client.Patch(ctx, cd, client.RawPatch(types.MergePatchType, patch), client.FieldOwner(FieldOwner))
	})
	if err = outcome.IgnoreGone(err); err != nil {
		return fmt.Errorf("setting power state of cluster %s: %w", a.Namespace, err)
	}
	log.FromContext(ctx).Info("set power state of cluster", "ClusterDeployment", a.Namespace, "powerState", a.Power, "why", a.Why)
	r.event(p.pool, cd, a.Why, "SetPower", fmt.Sprintf("Set power state of cluster %s to %s", a.Name, a.Power))
	return nil
}

func (r *Reconciler) deleteNamespace(ctx context.Context, a poolplan.DeleteNamespace) error {
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: a.Name}}
	err := r.Client.Delete(ctx, ns, client.Preconditions{UID: &a.UID})
	if err = client.IgnoreNotFound(err); err != nil {
		return fmt.Errorf("deleting namespace %s: %w", a.Name, err)
	}
	log.FromContext(ctx).Info("deleted namespace", "Namespace", a.Name, "why", a.Why)
	return nil
}

// isEmpty asks the API server whether there is no ClusterDeployment in a namespace.
func isEmpty(ctx context.Context, live client.Reader, namespace string) (bool, error) {
	list := metadataList("")
	list.SetGroupVersionKind(hivev1.GroupVersion.WithKind("ClusterDeploymentList"))
	if err := live.List(ctx, list, client.InNamespace(namespace), client.Limit(1)); err != nil {
		return false, fmt.Errorf("looking for clusters in namespace %s: %w", namespace, err)
	}
	return len(list.Items) == 0, nil
}
