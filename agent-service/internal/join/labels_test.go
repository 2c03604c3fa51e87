// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package join

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestKubeletsGiveThemselvesNoRestrictedLabels(t *testing.T) {
	for key, want := range map[string]bool{
		"tier":                                     false,
		"example.com/tier":                         false,
		"notkubernetes.io/tier":                    false,
		"kubernetes.io":                            false,
		"kubernetes.io/hostname":                   false,
		"topology.kubernetes.io/zone":              false,
		"node.kubernetes.io/instance-type":         false,
		"node.kubernetes.io/anything":              false,
		"blue.node.kubernetes.io/anything":         false,
		"kubelet.kubernetes.io/anything":           false,
		"kubernetes.io/anything":                   true,
		"k8s.io/anything":                          true,
		"topology.kubernetes.io/rack":              true,
		"node-role.kubernetes.io/worker":           true,
		"node-restriction.kubernetes.io/dedicated": true,
		"nodes.k8s.io/anything":                    true,
		"mynode.kubernetes.io/anything":            true,
	} {
		assert.Equal(t, want, Restricted(key), key)
	}
}

func TestLabelsAreSplit(t *testing.T) {
	own, restricted := SplitLabels(map[string]string{"tier": "web", "node-role.kubernetes.io/worker": ""})
	assert.Equal(t, map[string]string{"tier": "web"}, own)
	assert.Equal(t, map[string]string{"node-role.kubernetes.io/worker": ""}, restricted)
	own, restricted = SplitLabels(nil)
	assert.Nil(t, own)
	assert.Nil(t, restricted)
}
