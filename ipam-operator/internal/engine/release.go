// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	ipamv1 "github.com/muster-io/muster/apis/ipam/v1alpha1"
	"github.com/muster-io/muster/apis/outcome"
	"github.com/muster-io/muster/ipam-operator/internal/allocate"
	"github.com/muster-io/muster/ipam-operator/internal/metrics"
)

// Releaser gives addresses back.
type Releaser struct {
	// Writer reads from the cache and writes.
	Writer client.Client
	// Reader reads from the API server.
	Reader client.Reader
	// Count counts what is given back.
	Count *metrics.Metrics
	// Unprotected are the addresses that this process took its finalizer off; nil remembers none.
	Unprotected *Unprotected
}

// Release gives an address back: its own object with this UID, and no other that has its name by now. At once means
// that the address can be used again; otherwise the object stays, marked as deleted, for as long as its pool says. The
// mark comes first: a later pass that finds it finishes the work.
func (r Releaser) Release(ctx context.Context, namespace string, address allocate.Address, atOnce bool, why string) error {
	key := types.NamespacedName{Namespace: namespace, Name: address.Name}
	obj := &ipamv1.IPAddress{}
	err := r.Writer.Get(ctx, key, obj)
	if apierrors.IsNotFound(err) || err == nil && string(obj.UID) != address.UID {
		obj = &ipamv1.IPAddress{}
		err = r.Reader.Get(ctx, key, obj)
	}
	if outcome.IsGone(err) || err == nil && string(obj.UID) != address.UID {
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading IPAddress %s: %w", key, err)
	}
	if obj.DeletionTimestamp.IsZero() {
		uid := types.UID(address.UID)
		err := r.Writer.Delete(ctx, obj, client.Preconditions{UID: &uid})
		if outcome.IsGone(err) {
			return nil
		}
		if apierrors.IsConflict(err) {
			if other, readErr := r.isAnother(ctx, key, uid); other || readErr != nil {
				return readErr
			}
		}
		if err != nil {
			return fmt.Errorf("deleting IPAddress %s: %w", key, err)
		}
		r.Count.Released(allocate.Why(why))
	}
	if atOnce {
		return r.Unprotect(ctx, obj)
	}
	return nil
}

// isAnother asks the API server whether the object of a UID is gone, and another one may have its name.
func (r Releaser) isAnother(ctx context.Context, key types.NamespacedName, uid types.UID) (bool, error) {
	obj := &ipamv1.IPAddress{}
	if err := r.Reader.Get(ctx, key, obj); outcome.IsGone(err) {
		return true, nil
	} else if err != nil {
		return false, fmt.Errorf("reading IPAddress %s: %w", key, err)
	}
	return obj.UID != uid, nil
}

// Unprotect takes the finalizer off an address. The patch names the object's UID and the finalizers that it replaces, and
// not its resourceVersion: the deletion has just changed that.
func (r Releaser) Unprotect(ctx context.Context, obj *ipamv1.IPAddress) error {
	key, uid := client.ObjectKeyFromObject(obj), obj.UID
	r.Unprotected.begin(key, uid)
	if err := r.unprotect(ctx, obj); err != nil {
		r.Unprotected.Forget(key)
		return err
	}
	r.Unprotected.done(key, uid)
	return nil
}

func (r Releaser) unprotect(ctx context.Context, obj *ipamv1.IPAddress) error {
	for {
		before := slices.Clone(obj.Finalizers)
		if !controllerutil.RemoveFinalizer(obj, ipamv1.IPAddressFinalizer) {
			return nil
		}
		patch, err := json.Marshal([]map[string]any{
			{"op": "test", "path": "/metadata/uid", "value": obj.UID},
			{"op": "test", "path": "/metadata/finalizers", "value": before},
			{"op": "replace", "path": "/metadata/finalizers", "value": obj.Finalizers},
		})
		if err != nil {
			return fmt.Errorf("writing the patch of IPAddress %s: %w", obj.Name, err)
		}
		key, uid := client.ObjectKeyFromObject(obj), obj.UID
		err = r.Writer.Patch(ctx, obj, client.RawPatch(types.JSONPatchType, patch), client.FieldOwner(FieldOwner))
		switch {
		case err == nil:
			return nil
		case outcome.IsGone(err):
			r.Unprotected.Forget(key) // the watch may have shown that before
			return nil
		case !apierrors.IsInvalid(err) && !apierrors.IsConflict(err):
			return fmt.Errorf("removing the finalizer of IPAddress %s: %w", key, err)
		}
		// The cache was behind: look again, at the same object only.
		obj = &ipamv1.IPAddress{}
		if err := r.Reader.Get(ctx, key, obj); outcome.IsGone(err) || err == nil && obj.UID != uid {
			r.Unprotected.Forget(key)
			return nil
		} else if err != nil {
			return fmt.Errorf("reading IPAddress %s: %w", key, err)
		}
	}
}
