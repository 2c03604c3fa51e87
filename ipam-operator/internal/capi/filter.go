// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package capi

import (
	"sigs.k8s.io/controller-runtime/pkg/client"

	ipamv1 "github.com/muster-io/muster/apis/ipam/v1alpha1"
)

// WatchFilter is the value of ipamv1.WatchFilterLabel on the objects that an instance serves. An empty one selects every object.
type WatchFilter string

// Selects reports whether an object is to be served. Objects that are not selected still count as evidence of what is taken.
func (f WatchFilter) Selects(obj client.Object) bool {
	return f == "" || obj.GetLabels()[ipamv1.WatchFilterLabel] == string(f)
}
