// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package capi

import "sigs.k8s.io/controller-runtime/pkg/client"

// WatchFilterLabel names the instance of a provider that serves an object, where several run in one cluster.
const WatchFilterLabel = "cluster.x-k8s.io/watch-filter"

// WatchFilter is the value of WatchFilterLabel on the objects that an instance serves. An empty one selects every object.
type WatchFilter string

// Selects reports whether an object is to be served. Objects that are not selected still count as evidence of what is taken.
func (f WatchFilter) Selects(obj client.Object) bool {
	return f == "" || obj.GetLabels()[WatchFilterLabel] == string(f)
}
