// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package agentclusterinstall

import (
	"context"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/version"

	"github.com/muster-io/muster/agent-service/internal/domain"
	"github.com/muster-io/muster/agent-service/internal/workload"
)

// ofNodes chooses the version of a cluster that is installed, takes nodes and names no image set: its API server's, by its node access. Kubernetes supports no kubelet that is newer.
func (r *Reconciler) ofNodes(ctx context.Context, seen *snapshot) error {
	if ref := seen.install.Spec.ImageSetRef; ref != nil && ref.Name != "" || !seen.deployment.Spec.Installed || len(r.Versions) == 0 {
		return nil
	}
	access, err := workload.ReadAccess(ctx, r.Live, seen.deployment)
	if domain.KindOf(err) == domain.Conflict { // its hosts say what is wrong with it
		seen.unread = true
		if c := seen.cluster; c != nil {
			seen.version = c.OpenshiftVersion
		}
		return nil
	}
	if err != nil || access == nil {
		return err
	}
	seen.version = versionForNodes(access.KubernetesVersion(), r.Versions)
	return nil
}

// olderMinors is how many minors a kubelet may be older than its API server.
const olderMinors = 3

// versionForNodes is what nodes of an API server are installed with: its own version, of which any patch of the minor will do, else the newest of the versions that is older and not too old.
// Where there is none it is its own: no image has that. Versions that are not Kubernetes' say nothing of it, and the first of them is the default.
func versionForNodes(server string, known []string) string {
	own := strings.TrimPrefix(server, "v")
	for _, name := range []string{own, "v" + own} {
		if named, _ := release(":"+name, known); slices.Contains(known, named) {
			return named
		}
	}
	api, err := version.ParseSemantic(own)
	if err != nil {
		return own
	}
	var best *version.Version
	chosen, ofKubernetes := own, false
	for _, name := range known {
		v, err := version.ParseSemantic(name)
		if err != nil || v.Major() != api.Major() {
			continue
		}
		ofKubernetes = true
		switch {
		case v.Minor() == api.Minor() && v.PreRelease() == "":
			return own
		case v.Minor() < api.Minor() && v.Minor()+olderMinors >= api.Minor() && v.PreRelease() == "" && (best == nil || best.LessThan(v)):
			best, chosen = v, name
		}
	}
	if !ofKubernetes {
		return known[0]
	}
	return chosen
}
