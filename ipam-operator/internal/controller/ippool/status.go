// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package ippool

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	ipamv1 "github.com/muster-io/muster/apis/ipam/v1alpha1"
	"github.com/muster-io/muster/ipam-operator/internal/allocate"
)

// maxIndexes is how many claims status.indexes shows: with the longest names they still fit into one object.
const maxIndexes = 4096

// maxProblems is how many problems of a spec a condition names.
const maxProblems = 5

const (
	eventNormal  = corev1.EventTypeNormal
	eventWarning = corev1.EventTypeWarning
)

// indexChanges are the entries of status.indexes that differ, as a merge patch has them: nil for one that is gone.
type indexChanges map[string]*ipamv1.IPAddressStr

func changesOf(before, after map[string]ipamv1.IPAddressStr) indexChanges {
	changed := indexChanges{}
	for claim, ip := range after {
		if was, ok := before[claim]; !ok || was != ip {
			changed[claim] = &ip
		}
	}
	for claim := range before {
		if _, ok := after[claim]; !ok {
			changed[claim] = nil
		}
	}
	return changed
}

// status is what a pool's status should be, and the entries of indexes that are to be changed. It shares nothing that it changes with the pool.
func status(pool *ipamv1.IPPool, o observation, now metav1.Time) (ipamv1.IPPoolStatus, indexChanges) {
	counts := allocate.Tally(o.layout, o.used, o.prefixes, o.external)
	wanted := pool.Status
	wanted.Conditions = slices.Clone(pool.Status.Conditions)
	wanted.Allocations = nil
	if len(o.holders) > 0 {
		wanted.Allocations = make(map[string]ipamv1.IPAddressStr, min(len(o.holders), maxIndexes))
		for _, claim := range sortedFirst(o.holders, maxIndexes) {
			wanted.Allocations[claim] = o.holders[claim]
		}
	}
	wanted.IndexesTruncated = len(o.holders) > maxIndexes
	changed := changesOf(pool.Status.Allocations, wanted.Allocations)
	if len(changed) > 0 {
		wanted.LastUpdated = &now
	}
	wanted.Total, wanted.Used, wanted.Free, wanted.OutOfRange = &counts.Total, &counts.Used, &counts.Free, &counts.OutOfRange
	if wanted.External = nil; counts.External > 0 {
		wanted.External = &counts.External
	}
	wanted.ObservedGeneration = pool.Generation
	conditions := []metav1.Condition{ready(pool, o, counts), exhausted(o, counts)}
	if o.overlap != (overlap{}) || meta.FindStatusCondition(pool.Status.Conditions, ipamv1.OverlappingCondition) != nil {
		conditions = append(conditions, overlapping(o.overlap))
	}
	for _, condition := range conditions {
		condition.ObservedGeneration = pool.Generation
		condition.LastTransitionTime = now
		if before := meta.FindStatusCondition(wanted.Conditions, condition.Type); before != nil && before.Status == condition.Status {
			condition.LastTransitionTime = before.LastTransitionTime
		}
		meta.SetStatusCondition(&wanted.Conditions, condition)
	}
	return wanted, changed
}

func ready(pool *ipamv1.IPPool, o observation, counts allocate.Counts) metav1.Condition {
	c := metav1.Condition{Type: ipamv1.ReadyCondition, Status: metav1.ConditionFalse}
	switch problems := o.layout.Problems; {
	case o.foreign:
		c.Reason, c.Message = ipamv1.ReasonPoolDeleting, "Waiting for addresses of ipam.cluster.x-k8s.io to be given back"
	case !pool.DeletionTimestamp.IsZero():
		c.Reason, c.Message = ipamv1.ReasonPoolDeleting, fmt.Sprintf("Waiting for %d addresses to be given back", counts.Used)
	case len(problems) > 0:
		c.Reason, c.Message = ipamv1.ReasonPoolInvalid, strings.Join(problems[:min(len(problems), maxProblems)], "; ")
		if more := len(problems) - maxProblems; more > 0 {
			c.Message += fmt.Sprintf("; and %d more", more)
		}
	case counts.OutOfRange > 0:
		c.Reason, c.Message = ipamv1.ReasonAddressesOutOfRange, fmt.Sprintf("%d addresses in use are out of bounds of the pools given", counts.OutOfRange)
	default:
		c.Status, c.Reason, c.Message = metav1.ConditionTrue, ipamv1.ReasonPoolUsable, "The pool hands out addresses as its spec says"
	}
	return c
}

// overlapping is the condition Overlapping; its transition time is when the overlap began.
func overlapping(with overlap) metav1.Condition {
	if with == (overlap{}) {
		return metav1.Condition{
			Type: ipamv1.OverlappingCondition, Status: metav1.ConditionFalse, Reason: ipamv1.ReasonRangesSeparate, Message: "No other pool of the namespace hands out the same addresses",
		}
	}
	return metav1.Condition{Type: ipamv1.OverlappingCondition, Status: metav1.ConditionTrue, Reason: ipamv1.ReasonRangesOverlap, Message: with.message()}
}

func exhausted(o observation, counts allocate.Counts) metav1.Condition {
	if counts.Free > 0 {
		return metav1.Condition{Type: ipamv1.ExhaustedCondition, Status: metav1.ConditionFalse, Reason: ipamv1.ReasonAddressesFree, Message: "Addresses are free"}
	}
	if o.cooling > 0 && o.layout.CoolDown > 0 {
		return metav1.Condition{
			Type: ipamv1.ExhaustedCondition, Status: metav1.ConditionTrue, Reason: ipamv1.ReasonAddressesCoolDown,
			Message: fmt.Sprintf("Every address is taken or reserved; %d were released and cool down, the first of them is free at %s", o.cooling, o.nextFree.UTC().Format(time.RFC3339)),
		}
	}
	return metav1.Condition{
		Type: ipamv1.ExhaustedCondition, Status: metav1.ConditionTrue, Reason: ipamv1.ReasonNoAddressFree,
		Message: "Every address is taken or reserved",
	}
}

// lastWritten records the status that was written last, without indexes: where the stored kind lacks the newer fields, a status cannot show that it was written.
type lastWritten struct {
	mu    sync.Mutex
	pools map[types.NamespacedName]lastStatus
}

type lastStatus struct {
	uid             types.UID
	wanted, written ipamv1.IPPoolStatus
}

func newLastWritten() *lastWritten { return &lastWritten{pools: map[types.NamespacedName]lastStatus{}} }

// note records what was wanted of a pool, and the pool as it was stored.
func (t *lastWritten) note(stored *ipamv1.IPPool, wanted ipamv1.IPPoolStatus) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.pools[client.ObjectKeyFromObject(stored)] = lastStatus{stored.UID, withoutIndexes(wanted), withoutIndexes(stored.Status)}
}

// same reports whether this very status was written before and what it became is still there. The indexes are compared already.
func (t *lastWritten) same(pool *ipamv1.IPPool, wanted ipamv1.IPPoolStatus) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	last, ok := t.pools[client.ObjectKeyFromObject(pool)]
	if !ok || last.uid != pool.UID || !equality.Semantic.DeepEqual(last.written, withoutIndexes(pool.Status)) {
		return false
	}
	return equality.Semantic.DeepEqual(timeless(last.wanted), timeless(wanted))
}

// timeless is a status without indexes and without the times of transition, which are of no account where the conditions are not kept.
func timeless(status ipamv1.IPPoolStatus) ipamv1.IPPoolStatus {
	status = withoutIndexes(status)
	status.Conditions = slices.Clone(status.Conditions)
	for i := range status.Conditions {
		status.Conditions[i].LastTransitionTime = metav1.Time{}
	}
	return status
}

func (t *lastWritten) drop(pool types.NamespacedName) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.pools, pool)
}
