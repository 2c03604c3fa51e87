// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package poolplan

import (
	"k8s.io/apimachinery/pkg/util/resourceversion"

	hivev1 "github.com/muster-io/muster/apis/hive/v1"
)

// behind says whether the view is older than the one on which the last ticket stands. A decision on an older view could repeat one that was made, carried out and
// forgotten since.
func behind(view hivev1.ClusterPoolObservation, last *hivev1.ClusterPoolObservation) bool {
	if last == nil {
		return false
	}
	return older(view.ClusterDeployments, last.ClusterDeployments) || older(view.ClusterClaims, last.ClusterClaims)
}

// older says whether a is not known to be at least as new as b. Both are resourceVersions of one resource.
func older(a, b string) bool {
	if b == "" {
		return false
	}
	order, err := resourceversion.CompareResourceVersion(a, b)
	return err != nil || order < 0
}
