// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package service

import (
	"context"
	"fmt"

	"github.com/muster-io/muster/agent-service/internal/agentproto"
	"github.com/muster-io/muster/agent-service/internal/domain"
	"github.com/muster-io/muster/agent-service/internal/firstboot"
	"github.com/muster-io/muster/agent-service/internal/lifecycle"
	"github.com/muster-io/muster/agent-service/internal/transaction"
)

// FirstBoot is the first-boot data of a host that installs; Conflict otherwise. It holds a token for the installed system, which ends with the binding.
func (s *Machines) FirstBoot(ctx context.Context, key domain.HostKey) ([]byte, string, error) {
	var h *domain.Host
	var c *domain.Cluster
	values := firstboot.Values{Trusted: s.Authorities}
	var stated firstboot.Network
	err := s.engine.View(ctx, func(ctx context.Context, r transaction.Reader) (err error) {
		if h, err = r.Host(ctx, key); err != nil {
			return err
		}
		if h == nil {
			return domain.RefuseUnknown("Host", key.HostID)
		}
		if h.State != lifecycle.Installing && h.State != lifecycle.InstallingInProgress {
			return domain.Refuse(domain.Conflict, "HostNotInstalling", "host %s is %s: first-boot data is given out during the installation only", key.HostID, h.State)
		}
		c, err = r.Cluster(ctx, h.ClusterID)
		if err == nil && c == nil {
			return domain.RefuseUnknown("Cluster", h.ClusterID)
		}
		if err == nil && h.Bootstrap {
			values.Manifests, err = manifestsOf(ctx, r, c.ID)
		}
		if err == nil {
			values.ControlPlane, err = controlPlaneFor(ctx, r, c, h)
		}
		if err != nil {
			return err
		}
		e, err := r.InfraEnv(ctx, key.InfraEnvID)
		if err != nil || e == nil {
			return err
		}
		values.Trusted = firstboot.Certificates(s.Authorities, e.AdditionalTrustBundle)
		values.NTPSources = firstboot.TimeServers(e, c)
		image, err := s.rules().Image(c, h)
		if err == nil {
			stated, err = networkOf(ctx, r, e, h, image)
		}
		return err
	})
	if err == nil && stated.Ignored != "" {
		err = s.engine.Update(ctx, func(_ context.Context, w *transaction.Work) error {
			w.Tell(h, h.ClusterID, domain.Warning, "host_static_network_ignored", true, "Host %s: the network that is stated for the installed system: %s", h.FreeLabel(), stated.Ignored)
			return nil
		})
	}
	if err != nil {
		return nil, "", err
	}
	values.Networks = stated.Profiles
	return s.renderFirstBoot(ctx, h, c, values)
}

func manifestsOf(ctx context.Context, r transaction.Reader, clusterID string) (map[string]string, error) {
	files, err := r.Files(ctx, clusterID)
	manifests := map[string]string{}
	for _, f := range files {
		if err == nil && domain.IsManifest(f.Name) {
			var content []byte
			content, err = r.File(ctx, clusterID, f.Name)
			manifests[f.Name] = string(content)
		}
	}
	return manifests, err
}

func (s *Machines) renderFirstBoot(ctx context.Context, h *domain.Host, c *domain.Cluster, values firstboot.Values) ([]byte, string, error) {
	image, err := s.rules().Image(c, h)
	if err != nil {
		return nil, "", err
	}
	values.Hostname, values.Role, values.HostID, values.InfraEnvID, values.Labels = h.Hostname(), h.Role, h.HostID, h.InfraEnvID, h.NodeLabels
	values.ClusterID, values.ClusterName, values.BaseDomain, values.SSHKey, values.Proxy = c.ID, c.Name, c.BaseDNSDomain, c.SSHPublicKey, c.Proxy
	values.BaseURL, values.PullSecret = s.BaseURL, c.PullSecret
	if h.IgnitionConfigOverrides != "" {
		values.Overrides = firstboot.DataURL(h.IgnitionConfigOverrides)
	}
	if s.HostToken != nil {
		if values.Token, err = s.HostToken(ctx, h); err != nil {
			return nil, "", fmt.Errorf("making a token for host %s: %w", h.HostKey, err)
		}
	}
	if s.Join != nil {
		if values.Join, err = s.Join(ctx, h, c); err != nil {
			return nil, "", fmt.Errorf("preparing host %s to join its cluster: %w", h.HostKey, err)
		}
	}
	data, contentType, err := firstboot.Render(image, values)
	if err != nil { // it may quote secrets
		return nil, "", domain.Refuse(domain.Conflict, "FirstBootInvalid", "the template of the first-boot data of version %s cannot be filled in: its administrator has to mend it", c.OpenshiftVersion)
	}
	return data, contentType, nil
}

// networkOf is what an InfraEnv states for a host, with the addresses that it has of pools; empty for a host that has neither.
func networkOf(ctx context.Context, r transaction.Reader, e *domain.InfraEnv, h *domain.Host, image agentproto.OSImage) (firstboot.Network, error) {
	if h.Addressing.Waits() {
		return firstboot.Network{}, domain.Refuse(domain.Conflict, "AddressesMissing", "host %s cannot be installed: %s", h.HostID, h.Addressing.Why())
	}
	if len(e.StaticNetworkConfig) == 0 && len(h.Addressing.Given) == 0 {
		return firstboot.Network{}, nil
	}
	inventory, err := r.Inventory(ctx, h.HostKey)
	if err != nil {
		return firstboot.Network{}, err
	}
	stated, err := firstboot.NetworkOf(e.StaticNetworkConfig, inventory, image, h.Addressing.Given)
	if err != nil {
		return firstboot.Network{}, fmt.Errorf("rendering the network of host %s: %w", h.HostKey, err)
	}
	return stated, nil
}

// networkConfig is empty where the image does not read it, or nothing is stated for the host.
func (s *Machines) networkConfig(ctx context.Context, h *domain.Host, c *domain.Cluster) (config string, err error) {
	image, err := s.rules().Image(c, h)
	if err != nil || image.FirstBoot != firstboot.CloudInit {
		return "", err
	}
	e, err := s.knownInfraEnv(ctx, h.InfraEnvID)
	if err != nil || len(e.StaticNetworkConfig) == 0 && len(h.Addressing.Pools) == 0 {
		return "", err
	}
	err = s.engine.View(ctx, func(ctx context.Context, r transaction.Reader) error {
		stated, err := networkOf(ctx, r, e, h, image)
		config = stated.Config
		return err
	})
	return config, err
}
