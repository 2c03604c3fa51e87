// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package conflict_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/muster-io/muster/apis/conflict"
)

func TestALostRaceIsNoError(t *testing.T) {
	lost := apierrors.NewConflict(schema.GroupResource{Resource: "agents"}, "a", errors.New("it changed"))
	broken := errors.New("the disk is full")
	for name, c := range map[string]struct {
		end  error
		want error
		soon bool
	}{
		"a pass without an error ends as it does": {},
		"a conflict begins again":                 {end: fmt.Errorf("holding: %w", lost), soon: true},
		"a conflict among others begins again":    {end: errors.Join(broken, lost), soon: true},
		"another error stays one":                 {end: broken, want: broken},
	} {
		t.Run(name, func(t *testing.T) {
			r := conflict.Retried[reconcile.Request](reconcile.Func(func(context.Context, reconcile.Request) (reconcile.Result, error) {
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
