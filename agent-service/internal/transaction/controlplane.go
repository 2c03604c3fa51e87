// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package transaction

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"

	"github.com/muster-io/muster/agent-service/internal/controlplane"
	"github.com/muster-io/muster/agent-service/internal/domain"
	"github.com/muster-io/muster/agent-service/internal/hostplan"
	"github.com/muster-io/muster/agent-service/internal/lifecycle"
)

// controlPlaneFile is the file of a cluster with its controlplane.Secrets. No route and no list shows it.
const controlPlaneFile = "control-plane"

// MakeControlPlane makes the control plane of a cluster whose installation begins, where the image of the hosts that bring it up runs control planes. Members are all hosts of the
// cluster. Nodes join clusters of custom resources only.
func (w *Work) MakeControlPlane(ctx context.Context, c *domain.Cluster, hosts, members []*domain.Host) error {
	image, err := w.Image(c, hosts[0])
	if err != nil || !image.ControlPlane || c.Kube == (domain.KubeRef{}) {
		return err
	}
	plane, err := c.ControlPlaneOn(hosts, members)
	if err != nil {
		return err
	}
	var secrets controlplane.Secrets
	if plane.CA, secrets, err = controlplane.New(w.Now, c.Name, plane.Server); err != nil {
		return fmt.Errorf("making the control plane of cluster %s: %w", c.ID, err)
	}
	if len(plane.Members) > 0 {
		if secrets.Shared, err = controlplane.NewShared(w.Now); err != nil {
			return fmt.Errorf("making the keys that the control planes of cluster %s share: %w", c.ID, err)
		}
	}
	c.ControlPlane = plane
	for _, h := range hosts {
		h.Bootstrap = true
		h.Wipe = domain.Strictest(h.Wipe, domain.WipeInstalledDisk) // its disk gets the key of the cluster
	}
	return w.keepSecrets(ctx, c, secrets)
}

func (w *Work) keepSecrets(ctx context.Context, c *domain.Cluster, secrets controlplane.Secrets) error {
	content, err := json.Marshal(secrets)
	if err != nil {
		return fmt.Errorf("encoding the control plane of cluster %s: %w", c.ID, err)
	}
	return w.PutFile(ctx, c.ID, controlPlaneFile, content, w.Now)
}

// SecretsOf are those of the control plane of a cluster that has one.
func SecretsOf(ctx context.Context, r Reader, c *domain.Cluster) (controlplane.Secrets, error) {
	var secrets controlplane.Secrets
	content, err := r.File(ctx, c.ID, controlPlaneFile)
	if err == nil && json.Unmarshal(content, &secrets) != nil { // the error may quote them
		err = fmt.Errorf("the secrets of the control plane of cluster %s cannot be read", c.ID)
	}
	return secrets, err
}

// sealControlPlane keeps the administrator's kubeconfig with a cluster that is installed, and forgets the keys of its authorities. It forgets all of a control plane whose installation
// ended otherwise: another one makes its own.
func (w *Work) sealControlPlane(ctx context.Context, c *domain.Cluster) error {
	switch {
	case c.ControlPlane == nil || c.ControlPlane.Sealed || lifecycle.ClusterBusy(c.Status):
		return nil
	case !hostplan.TakesDayTwo(c):
		c.ControlPlane = nil
		return w.DeleteFile(ctx, c.ID, controlPlaneFile)
	}
	secrets, err := SecretsOf(ctx, w, c)
	if err != nil {
		return err
	}
	sealed := *c.ControlPlane
	sealed.Sealed = true
	c.ControlPlane, c.Kubeconfig = &sealed, cmp.Or(c.Kubeconfig, secrets.Admin)
	secrets.CAKey, secrets.Admin, secrets.Shared = "", "", nil
	return w.keepSecrets(ctx, c, secrets)
}
