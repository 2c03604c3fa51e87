// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package outcome_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/muster-io/muster/apis/faultinject"
	"github.com/muster-io/muster/apis/outcome"
)

func TestALostRaceIsNoError(t *testing.T) {
	lost := apierrors.NewConflict(schema.GroupResource{Resource: "agents"}, "a", errors.New("it changed"))
	broken := errors.New("the disk is full")
	agents := schema.GroupResource{Resource: "agents"}
	timeout := apierrors.NewServerTimeout(agents, "patch", 1)
	throttled := apierrors.NewTooManyRequests("wait", 1)
	exists := apierrors.NewAlreadyExists(agents, "a")
	missing := apierrors.NewNotFound(agents, "a")
	for name, c := range map[string]struct {
		end  error
		want error
		soon bool
	}{
		"a pass without an error ends as it does":     {},
		"a conflict begins again":                     {end: fmt.Errorf("holding: %w", lost), soon: true},
		"a conflict among others begins again":        {end: errors.Join(broken, lost), soon: true},
		"an error marked as a lost race begins again": {end: fmt.Errorf("planning: %w", outcome.Again(broken)), soon: true},
		"a time-out is an error":                      {end: timeout, want: timeout},
		"throttling is an error":                      {end: throttled, want: throttled},
		"an object that exists is an error":           {end: exists, want: exists},
		"an object that is missing is an error":       {end: missing, want: missing},
		"an error that has a pace stays one":          {end: outcome.Pace(broken, time.Minute), want: broken},
		"another error stays one":                     {end: broken, want: broken},
	} {
		t.Run(name, func(t *testing.T) {
			r := outcome.Reconciler[reconcile.Request](reconcile.Func(func(context.Context, reconcile.Request) (reconcile.Result, error) {
				return reconcile.Result{RequeueAfter: time.Hour}, c.end
			}))
			result, err := r.Reconcile(t.Context(), reconcile.Request{})
			assert.Equal(t, c.want, err)
			if c.soon {
				assert.Positive(t, result.RequeueAfter)
				assert.Less(t, result.RequeueAfter, 100*time.Millisecond)
			} else {
				assert.Equal(t, time.Hour, result.RequeueAfter)
			}
		})
	}
}

func TestARaceMayBeRepeatedAtAPaceOfItsOwn(t *testing.T) {
	lost := apierrors.NewConflict(schema.GroupResource{Resource: "ippools"}, "a", errors.New("it changed"))
	for name, err := range map[string]error{
		"a conflict":          outcome.Pace(lost, time.Minute),
		"an outdated view":    outcome.Pace(outcome.Again(errors.New("behind")), time.Minute),
		"a wrapped paced one": fmt.Errorf("writing: %w", outcome.Pace(lost, time.Minute)),
	} {
		t.Run(name, func(t *testing.T) {
			result, err := outcome.Of(t.Context(), reconcile.Result{RequeueAfter: time.Hour}, err)
			require.NoError(t, err)
			assert.Equal(t, reconcile.Result{RequeueAfter: time.Minute}, result)
		})
	}
}

// TestAKindThatIsNotServedIsNotGone has an API server that does not know the path of an object.
func TestAKindThatIsNotServedIsNotGone(t *testing.T) {
	resource := schema.GroupResource{Group: "ipam.metal3.io", Resource: "ipclaims"}
	assert.True(t, outcome.IsGone(apierrors.NewNotFound(resource, "c")))
	assert.False(t, outcome.IsGone(faultinject.NotServed(resource)))
	assert.False(t, outcome.IsGone(nil))
	require.NoError(t, outcome.IgnoreGone(apierrors.NewNotFound(resource, "c")))
	require.NoError(t, outcome.IgnoreGone(nil))
	require.Error(t, outcome.IgnoreGone(faultinject.NotServed(resource)))
}

func TestARefusalIsNoFailure(t *testing.T) {
	pods := schema.GroupResource{Resource: "pods"}
	terminating := apierrors.NewForbidden(pods, "a", errors.New("the namespace is being terminated"))
	terminating.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
	for name, c := range map[string]struct {
		err  error
		want bool
	}{
		"none":                          {},
		"a schema":                      {err: apierrors.NewInvalid(schema.GroupKind{Kind: "Pod"}, "a", nil), want: true},
		"a quota or a policy":           {err: fmt.Errorf("creating: %w", apierrors.NewForbidden(pods, "a", errors.New("exceeded quota"))), want: true},
		"a request that cannot be read": {err: apierrors.NewBadRequest("unknown field"), want: true},
		"one that is too large":         {err: apierrors.NewRequestEntityTooLargeError("limit is 3145728"), want: true},
		"a namespace that is deleted":   {err: terminating},
		"a conflict":                    {err: apierrors.NewConflict(pods, "a", errors.New("it changed"))},
		"throttling":                    {err: apierrors.NewTooManyRequests("wait", 1)},
		"an API server that is away":    {err: apierrors.NewServiceUnavailable("a moment")},
		"a kind that is not served":     {err: faultinject.NotServed(pods)},
	} {
		t.Run(name, func(t *testing.T) { assert.Equal(t, c.want, outcome.IsRefused(c.err)) })
	}
}
