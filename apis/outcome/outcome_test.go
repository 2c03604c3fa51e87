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
	apierrors "k8s.io/apimachinery/pkg/api/errors"
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
