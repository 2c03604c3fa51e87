// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"

	ipamv1 "github.com/muster-io/muster/apis/ipam/v1alpha1"
	"github.com/muster-io/muster/apis/outcome"
)

// unseenFor is for how long the watch may be behind what this process wrote or read before the API server is asked.
const unseenFor = time.Minute

// Verify asks the API server about addresses of a pool that this process knows of and the watch has not shown: an object
// that came and went while the watch was interrupted leaves no event. It returns when to ask again, zero for never.
func (r *Reconciler) Verify(ctx context.Context, pool types.NamespacedName) (time.Duration, error) {
	old, younger := r.Index.Unseen(pool, r.Clock.Now().Add(-unseenFor))
	for _, record := range old {
		err := r.Live.Get(ctx, record.Key.NamespacedName, &ipamv1.IPAddress{})
		switch {
		case outcome.IsGone(err):
			ctrl.LoggerFrom(ctx).Info("Address is gone without an event", "IPAddress", record.Key.Name)
			r.forgetAddress(record)
		case err != nil:
			return 0, fmt.Errorf("reading IPAddress %s: %w", record.Key.NamespacedName, err)
		default:
			r.Index.Learn(record, r.Clock.Now())
			younger = true
		}
	}
	if younger {
		return unseenFor, nil
	}
	return 0, nil
}
