// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package clusterpool

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	hivev1 "github.com/muster-io/muster/apis/hive/v1"
	"github.com/muster-io/muster/pool-operator/internal/poolplan"
)

// ticket makes sure that the decision stands: either its status was written, with the resourceVersion that was read as precondition, or nothing has to be written yet and the
// pool is still what it was. hold says that the actions that need a ticket may be carried out; delay is when a report that was put off is due.
func (r *Reconciler) ticket(ctx context.Context, p *pass, d poolplan.Decision) (hold bool, delay time.Duration, err error) {
	needed := needsTicket(p.memory, d.Actions, r.Clock.Now())
	switch d.Change {
	case poolplan.StatusTicket:
		return true, 0, r.writeStatus(ctx, p, d.Status)
	case poolplan.StatusReport, poolplan.StatusCounts:
		interval := r.ReportInterval
		if d.Change == poolplan.StatusCounts {
			interval = p.memory.countsInterval(interval)
		}
		wait := interval - r.Clock.Now().Sub(p.memory.written)
		if wait <= 0 {
			r.memory.change(func() { p.memory.reported(r.Clock.Now()) })
			return true, 0, r.writeStatus(ctx, p, d.Status)
		}
		if !needed {
			return false, wait, nil
		}
		return true, wait, r.confirm(ctx, p.pool)
	case poolplan.StatusSame:
	}
	if !needed {
		return false, 0, nil
	}
	return true, 0, r.confirm(ctx, p.pool)
}

// needsTicket says whether an action is among them that stands on the pool's status and on nothing else.
func needsTicket(memory *poolMemory, actions []poolplan.Action, now time.Time) bool {
	for _, a := range actions {
		if ticketed(a) && !memory.recently(a, now) {
			return true
		}
	}
	return false
}

// ticketed says whether an action stands on the pool's status. The others carry the resourceVersion of the one object that they change.
func ticketed(a poolplan.Action) bool {
	switch a.(type) {
	case poolplan.CreateCluster, poolplan.DeleteCluster, poolplan.WithdrawCluster, poolplan.DeleteNamespace:
		return true
	case poolplan.HoldPool, poolplan.ReleasePool, poolplan.SetPower:
		return false
	}
	return true
}

func (r *Reconciler) writeStatus(ctx context.Context, p *pass, status hivev1.ClusterPoolStatus) error {
	next := p.pool.DeepCopy()
	next.Status = status
	patch := withCounts{client.MergeFromWithOptions(p.pool, client.MergeFromWithOptimisticLock{})}
	if err := r.Client.Status().Patch(ctx, next, patch, client.FieldOwner(FieldOwner)); err != nil {
		return fmt.Errorf("writing status of pool %s/%s: %w", p.pool.Namespace, p.pool.Name, err)
	}
	p.pool = next
	r.memory.change(func() { p.memory.written = r.Clock.Now() })
	return nil
}

// withCounts is a merge patch of a pool's status that always has size, ready and standby in it. A count that is 0 and was never written is no difference to a patch, and would stay absent,
// which columns and autoscalers show as unknown.
type withCounts struct{ client.Patch }

// Data implements client.Patch.
func (w withCounts) Data(object client.Object) ([]byte, error) {
	data, err := w.Patch.Data(object)
	pool, ok := object.(*hivev1.ClusterPool)
	if err != nil || !ok {
		return data, err
	}
	var patch map[string]any
	if err := json.Unmarshal(data, &patch); err != nil {
		return nil, err
	}
	status, ok := patch["status"].(map[string]any)
	if !ok {
		return data, nil
	}
	status["size"], status["ready"], status["standby"] = pool.Status.Size, pool.Status.Ready, pool.Status.Standby
	return json.Marshal(patch)
}

// confirm asks the API server whether the pool is still what it was when it was read. Otherwise operations that were finished and forgotten could be carried out again.
func (r *Reconciler) confirm(ctx context.Context, pool *hivev1.ClusterPool) error {
	now := &metav1.PartialObjectMetadata{}
	now.SetGroupVersionKind(hivev1.GroupVersion.WithKind("ClusterPool"))
	if err := r.Live.Get(ctx, client.ObjectKeyFromObject(pool), now); err != nil {
		return fmt.Errorf("confirming pool %s/%s: %w", pool.Namespace, pool.Name, err)
	}
	if now.UID != pool.UID || now.ResourceVersion != pool.ResourceVersion {
		return apierrors.NewConflict(hivev1.GroupVersion.WithResource("clusterpools").GroupResource(), pool.Name, errOldPool)
	}
	return nil
}

// operationKey identifies the operation that an action carries out; empty for actions that are no operations.
func operationKey(a poolplan.Action) string {
	switch a := a.(type) {
	case poolplan.CreateCluster:
		return doneKey(hivev1.OperationCreate, a.Namespace)
	case poolplan.DeleteCluster:
		return doneKey(hivev1.OperationDelete, a.Namespace)
	case poolplan.HoldPool, poolplan.ReleasePool, poolplan.WithdrawCluster, poolplan.SetPower, poolplan.DeleteNamespace:
	}
	return ""
}

func doneKey(kind hivev1.OperationKind, namespace string) string {
	return string(kind) + "/" + namespace
}

// objectOf returns what an action that is no operation changes, and the version that it was seen at; empty for actions that change no cluster or namespace.
func objectOf(a poolplan.Action) (object, version string) {
	switch a := a.(type) {
	case poolplan.SetPower:
		return clusterObject(a.Namespace), a.ResourceVersion
	case poolplan.DeleteNamespace:
		return namespaceObject(a.Name), string(a.UID)
	case poolplan.CreateCluster, poolplan.DeleteCluster, poolplan.HoldPool, poolplan.ReleasePool, poolplan.WithdrawCluster:
	}
	return "", ""
}

func clusterObject(namespace string) string { return "ClusterDeployment/" + namespace }

func namespaceObject(name string) string { return "Namespace/" + name }

// recently says whether this process carried out the action and should see its effect soon.
func (m *poolMemory) recently(a poolplan.Action, now time.Time) bool {
	if object, version := objectOf(a); object != "" {
		last := m.changed[object]
		return last.version == version && now.Sub(last.at) < replayAfter
	}
	key := operationKey(a)
	if key == "" {
		return false
	}
	at, done := m.done[key]
	return done && now.Sub(at) < replayAfter
}
