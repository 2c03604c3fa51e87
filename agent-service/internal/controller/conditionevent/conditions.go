// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package conditionevent

import (
	agentv1 "github.com/muster-io/muster/apis/agentinstall/v1beta1"
	hivev1 "github.com/muster-io/muster/apis/hive/v1"
)

// OfAgentInstall is what matters of conditions of agent-install.openshift.io.
func OfAgentInstall(conditions []agentv1.Condition) []Condition {
	all := make([]Condition, 0, len(conditions))
	for _, c := range conditions {
		all = append(all, Condition{Type: c.Type, Reason: c.Reason, Message: c.Message})
	}
	return all
}

// OfHive is what matters of conditions of hive.openshift.io and its extensions.
func OfHive(conditions []hivev1.Condition) []Condition {
	all := make([]Condition, 0, len(conditions))
	for _, c := range conditions {
		all = append(all, Condition{Type: c.Type, Reason: c.Reason, Message: c.Message})
	}
	return all
}
