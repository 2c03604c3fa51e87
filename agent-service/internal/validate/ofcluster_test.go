// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package validate

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestAClusterSaysWhatIsMissing(t *testing.T) {
	for name, c := range map[string]struct {
		given   ClusterSubject
		failing map[string]string
	}{
		"everything is missing": {ClusterSubject{ControlPlaneCount: 3, Counted: true, UnreadyHosts: 2}, map[string]string{
			"pull-secret-set": "The cluster has no pull secret: set one", "dns-domain-defined": "The cluster has no base domain: set one",
			"api-vips-defined":               "The addresses of the API are not defined: set them, or user managed networking",
			"all-hosts-are-ready-to-install": "Not ready to install: 2 hosts of the cluster", "sufficient-masters-count": "The cluster needs 3 hosts of the control plane and has 0",
		}},
		"nothing is missing": {ClusterSubject{PullSecretSet: true, BaseDomain: "a.b", APIVIPs: 1, ControlPlaneCount: 3, Counted: true, ControlPlaneHosts: 3}, map[string]string{}},
		"one node needs no address": {ClusterSubject{PullSecretSet: true, BaseDomain: "a.b", NoAPIVIPs: true, ControlPlaneCount: 1, Counted: true}, map[string]string{
			"sufficient-masters-count": "The cluster needs 1 host of the control plane and has 0",
		}},
		"hosts that are not counted are pending": {ClusterSubject{PullSecretSet: true, BaseDomain: "a.b", APIVIPs: 1, ControlPlaneCount: 3}, map[string]string{
			"all-hosts-are-ready-to-install": "The hosts of the cluster are not counted yet", "sufficient-masters-count": "The hosts of the cluster are not counted yet",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			found := map[string]string{}
			for _, r := range OfCluster(c.given) {
				assert.NotEmpty(t, r.Category)
				if r.Status != Success {
					found[r.ID] = r.Message
				}
			}
			assert.Equal(t, c.failing, found)
		})
	}
}
