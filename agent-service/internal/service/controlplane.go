// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package service

import (
	"context"
	"fmt"

	"github.com/muster-io/muster/agent-service/internal/domain"
	"github.com/muster-io/muster/agent-service/internal/join"
	"github.com/muster-io/muster/agent-service/internal/transaction"
	"github.com/muster-io/muster/apis/nodeobjects"
)

// ControlPlane is that of a cluster whose hosts run it, with the kubeconfig of its node manager, which is a secret; nil for other clusters.
func (s *Clusters) ControlPlane(ctx context.Context, by domain.Principal, id string) (plane *domain.ControlPlane, nodeManager string, err error) {
	err = s.engine.View(ctx, func(ctx context.Context, r transaction.Reader) error {
		c, err := transaction.OwnCluster(ctx, r, by, id)
		if err != nil || c.ControlPlane == nil {
			return err
		}
		secrets, err := transaction.SecretsOf(ctx, r, c)
		plane, nodeManager = c.ControlPlane, secrets.NodeManager
		return err
	})
	return plane, nodeManager, err
}

// controlPlaneFor is what a host gets of the control plane of its cluster: nil unless it runs it.
func controlPlaneFor(ctx context.Context, r transaction.Reader, c *domain.Cluster, h *domain.Host) (*join.ControlPlane, error) {
	plane := c.ControlPlane
	if !plane.RunsOn(h) || !h.Bootstrap {
		return nil, nil
	}
	secrets, err := transaction.SecretsOf(ctx, r, c)
	if err != nil {
		return nil, err
	}
	if secrets.CAKey == "" {
		return nil, domain.Refuse(domain.Conflict, "ControlPlaneSealed", "cluster %s is installed: its control plane is on its hosts alone", c.ID)
	}
	objects, err := nodeobjects.Render(nodeobjects.Settings{ClusterDNS: plane.ClusterDNS(), DNSImage: nodeobjects.DefaultDNSImage})
	if err != nil {
		return nil, fmt.Errorf("preparing the control plane of cluster %s: %w", c.ID, err)
	}
	given := &join.ControlPlane{
		Cluster: c.Name, Server: plane.Server, CA: plane.CA, CAKey: secrets.CAKey, PodCIDRs: plane.PodCIDRs, ServiceCIDRs: plane.ServiceCIDRs, Objects: string(objects),
	}
	if own := plane.Member(h); own != nil {
		if secrets.Shared == nil {
			return nil, fmt.Errorf("the keys that the control planes of cluster %s share are missing", c.ID)
		}
		given.Group = &join.Group{Name: own.Name, Shared: *secrets.Shared}
		for _, m := range plane.Members {
			given.Group.Members = append(given.Group.Members, join.Member{Name: m.Name, Address: m.Address})
		}
	}
	if c.BaseDNSDomain != "" {
		given.Names = []string{"api." + c.Name + "." + c.BaseDNSDomain}
	}
	return given, nil
}
