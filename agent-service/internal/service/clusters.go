// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package service

import (
	"context"
	"reflect"
	"slices"

	"github.com/muster-io/muster/agent-service/internal/domain"
	"github.com/muster-io/muster/agent-service/internal/hardware"
	"github.com/muster-io/muster/agent-service/internal/hostplan"
	"github.com/muster-io/muster/agent-service/internal/lifecycle"
	"github.com/muster-io/muster/agent-service/internal/transaction"
)

// Clusters is what users do with clusters.
type Clusters struct{ *core }

// CreateCluster makes a cluster that belongs to the principal.
func (s *Clusters) CreateCluster(ctx context.Context, by domain.Principal, request domain.NewCluster) (*domain.Cluster, error) {
	id, err := newID(request.ID)
	if err != nil {
		return nil, err
	}
	settings := request.ClusterSettings
	settings.Complete()
	if err := s.rules().Check(settings, request.Kube); err != nil {
		return nil, err
	}
	if err := domain.CheckName(request.Name); err != nil {
		return nil, err
	}
	var made *domain.Cluster
	err = s.engine.Update(ctx, func(ctx context.Context, w *transaction.Work) error {
		there, err := w.TrackCluster(ctx, id)
		if err != nil {
			return err
		}
		if there != nil {
			return domain.Refuse(domain.Conflict, "AlreadyExists", "cluster %s exists already", id)
		}
		made = &domain.Cluster{
			ID: id, Name: request.Name, Owner: by.Owner(), Kube: request.Kube, ClusterSettings: settings, Status: lifecycle.ClusterInsufficient,
			StatusInfo: "Cluster is not ready for install: too few hosts are approved and valid", StatusUpdatedAt: w.Now, CreatedAt: w.Now, UpdatedAt: w.Now,
		}
		if by.Admin && request.Owner != nil {
			made.Owner = *request.Owner
		}
		if settings.Imported {
			made.Status, made.StatusInfo = lifecycle.ClusterAddingHosts, "Cluster is installed already and takes hosts"
		} else if request.Restored != nil {
			made.Restore(request.Restored, w.Now)
		}
		w.AddCluster(made)
		w.TellCluster(made, domain.Info, "cluster_registration_succeeded", "Successfully registered cluster")
		return nil
	}, id)
	if err != nil {
		return nil, err
	}
	return new(*made), nil
}

// GetCluster returns a cluster of the principal.
func (s *Clusters) GetCluster(ctx context.Context, by domain.Principal, id string) (*domain.Cluster, error) {
	return s.ownCluster(ctx, by, id)
}

// ListClusters returns clusters of the principal.
func (s *Clusters) ListClusters(ctx context.Context, by domain.Principal, filter domain.ClusterFilter) (found domain.List[domain.Cluster], err error) {
	err = s.engine.View(ctx, func(ctx context.Context, r transaction.Reader) (err error) {
		found, err = r.Clusters(ctx, domain.Scope{Principal: by}, filter)
		return err
	})
	return found, err
}

// changeCluster runs a transaction about one cluster of a principal, and brings its hosts up to date at the end.
func (s *Clusters) changeCluster(ctx context.Context, by domain.Principal, id string, do func(ctx context.Context, w *transaction.Work, c *domain.Cluster, members []*domain.Host) error) (*domain.Cluster, error) {
	var c *domain.Cluster
	err := s.engine.Update(ctx, func(ctx context.Context, w *transaction.Work) (err error) {
		if c, err = w.OwnCluster(ctx, by, id); err != nil {
			return err
		}
		members, err := w.Members(ctx, id)
		if err != nil {
			return err
		}
		if err := do(ctx, w, c, members); err != nil || w.Dropped(id) {
			return err
		}
		return w.RefreshCluster(ctx, id)
	}, id)
	if err != nil {
		return nil, err
	}
	return new(*c), nil
}

// UpdateCluster lets change edit the settings; Conflict while it installs, but for HoldInstallation and counts.
func (s *Clusters) UpdateCluster(ctx context.Context, by domain.Principal, id string, change func(*domain.ClusterSettings) error) (*domain.Cluster, error) {
	return s.changeCluster(ctx, by, id, func(_ context.Context, w *transaction.Work, c *domain.Cluster, _ []*domain.Host) error {
		before := c.ClusterSettings
		after := before
		if err := change(&after); err != nil {
			return err
		}
		after.Complete()
		if reflect.DeepEqual(before, after) {
			return nil
		}
		check := s.rules().Check(after, c.Kube)
		if hostplan.TakesDayTwo(c) { // what is installed stays what it is
			check = after.Check()
		}
		if check != nil {
			return check
		}
		if !hardware.Fits(before.CPUArchitecture, after.CPUArchitecture) && c.HostCount > 0 {
			return domain.Refuse(domain.Conflict, "CPUArchitectureInUse", "cluster %s has hosts: its architecture cannot be changed", id)
		}
		rest := after
		rest.HoldInstallation, rest.ControlPlaneCount, rest.WorkerCount = before.HoldInstallation, before.ControlPlaneCount, before.WorkerCount
		if hardware.Fits(before.CPUArchitecture, after.CPUArchitecture) { // what is installed stays what it is
			rest.CPUArchitecture = before.CPUArchitecture
		}
		if lifecycle.ClusterBusy(c.Status) && !reflect.DeepEqual(before, rest) {
			return domain.Refuse(domain.Conflict, "ClusterInstalling", "cluster %s is being installed: cancel the installation first", id)
		}
		c.ClusterSettings = after
		// The change may remove the obstacle. A cancelled installation begins again when it is no longer held.
		c.Preparation = domain.Preparation{Cancelled: c.Preparation.Cancelled && before.HoldInstallation == after.HoldInstallation}
		return nil
	})
}

// DeleteCluster frees the hosts, those of InfraEnvs among them that bind their hosts to it. Conflict while it installs, unless forced.
func (s *Clusters) DeleteCluster(ctx context.Context, by domain.Principal, id string, force bool) error {
	_, err := s.changeCluster(ctx, by, id, func(ctx context.Context, w *transaction.Work, c *domain.Cluster, members []*domain.Host) error {
		if lifecycle.ClusterBusy(c.Status) && !force {
			return domain.Refuse(domain.Conflict, "ClusterInstalling", "cluster %s is being installed: cancel the installation first", id)
		}
		w.DropCluster(id)
		for _, h := range members {
			switch {
			case !lifecycle.Busy(h.State):
			case !lifecycle.Installs(h.State): // nothing is written yet
				h.State = lifecycle.Known
			case h.Resident: // it runs from its disk, and can be asked to restart
				h.State = lifecycle.Installed
			default:
				h.State = lifecycle.Cancelled
			}
			if err := w.Abandon(ctx, h, c); err != nil {
				return err
			}
		}
		w.TellCluster(c, domain.Info, "cluster_deregistered", "Deregistered cluster")
		return nil
	})
	if err != nil {
		s.tellRefused(ctx, err, domain.Event{
			Name: "cluster_deregister_failed", ClusterID: id, ForCluster: true, Message: domain.Truncate("Failed to deregister cluster. Error: "+err.Error(), 2000),
		})
	}
	return err
}

// InstallCluster starts the installation: Conflict ClusterNotReady says what is missing.
func (s *Clusters) InstallCluster(ctx context.Context, by domain.Principal, id string) (*domain.Cluster, error) {
	return s.changeCluster(ctx, by, id, func(ctx context.Context, w *transaction.Work, c *domain.Cluster, members []*domain.Host) error {
		if err := w.RefreshCluster(ctx, id); err != nil {
			return err
		}
		if c.Status != lifecycle.ClusterReady {
			return domain.Refuse(domain.Conflict, "ClusterNotReady", "cluster %s is %s: %s", id, c.Status, c.Missing(members))
		}
		ready := slices.DeleteFunc(slices.Clone(members), func(h *domain.Host) bool { return h.State != lifecycle.Known || !h.Approved })
		for _, h := range ready {
			if _, err := s.rules().Image(c, h); err != nil {
				return err
			}
		}
		if err := w.AssignRoles(c, ready, members); err != nil {
			return err
		}
		c.InstallStartedAt, c.Preparation.Cancelled = w.Now, false
		w.EnterCluster(c, lifecycle.ClusterPreparing, "Preparing cluster for installation")
		for _, h := range ready {
			if err := w.Act(ctx, h, lifecycle.Prepare, nil); err != nil {
				return err
			}
		}
		masters := slices.DeleteFunc(slices.Clone(ready), func(h *domain.Host) bool { return h.Role != "master" })
		if len(masters) == 0 {
			return nil
		}
		masters[0].Bootstrap = true
		return w.MakeControlPlane(ctx, c, masters[:max(1, min(len(masters), c.ControlPlaneCount))], members)
	})
}

// CancelCluster ends an installation that runs or failed.
func (s *Clusters) CancelCluster(ctx context.Context, by domain.Principal, id string) (*domain.Cluster, error) {
	return s.changeCluster(ctx, by, id, func(ctx context.Context, w *transaction.Work, c *domain.Cluster, members []*domain.Host) error {
		if !lifecycle.ClusterBusy(c.Status) && c.Status != lifecycle.ClusterFailed {
			return domain.Refuse(domain.Conflict, "ClusterNotInstalling", "cluster %s is %s: no installation to cancel", id, c.Status)
		}
		started := c.Status != lifecycle.ClusterPreparing
		if started {
			w.EnterCluster(c, lifecycle.ClusterCancelled, "Cluster installation was cancelled by user")
		} else {
			c.Preparation = domain.Preparation{Cancelled: true}
			w.EnterCluster(c, lifecycle.ClusterInsufficient, "Cluster installation was cancelled by user")
		}
		return w.Each(ctx, members, lifecycle.Cancel, c)
	})
}

// ResetCluster makes a cluster and its hosts ready for another installation.
func (s *Clusters) ResetCluster(ctx context.Context, by domain.Principal, id string) (*domain.Cluster, error) {
	return s.changeCluster(ctx, by, id, func(ctx context.Context, w *transaction.Work, c *domain.Cluster, members []*domain.Host) error {
		if !slices.Contains([]lifecycle.ClusterState{lifecycle.ClusterFailed, lifecycle.ClusterCancelled}, c.Status) && !lifecycle.ClusterBusy(c.Status) {
			return domain.Refuse(domain.Conflict, "ClusterNotResettable", "cluster %s is %s: only failed and cancelled installations are reset", id, c.Status)
		}
		c.Preparation = domain.Preparation{}
		w.EnterCluster(c, lifecycle.ClusterInsufficient, "Cluster was reset by user")
		return w.Each(ctx, members, lifecycle.Reset, c)
	})
}

// CompleteCluster ends the installation, with the kubeconfig where there is one.
func (s *Clusters) CompleteCluster(ctx context.Context, by domain.Principal, id, kubeconfig string) (*domain.Cluster, error) {
	return s.changeCluster(ctx, by, id, func(_ context.Context, w *transaction.Work, c *domain.Cluster, _ []*domain.Host) error {
		switch c.Status {
		case lifecycle.ClusterInstalling, lifecycle.ClusterFinalizing:
			w.EnterCluster(c, lifecycle.ClusterInstalled, "Cluster is installed")
		case lifecycle.ClusterInstalled, lifecycle.ClusterAddingHosts:
		default:
			return domain.Refuse(domain.Conflict, "ClusterNotInstalling", "cluster %s is %s: it cannot be completed", id, c.Status)
		}
		if kubeconfig != "" {
			c.Kubeconfig = kubeconfig
		}
		return nil
	})
}

// Kubeconfig is of an installed cluster; Conflict ClusterNotInstalled before.
func (s *Clusters) Kubeconfig(ctx context.Context, by domain.Principal, id string) ([]byte, error) {
	c, err := s.GetCluster(ctx, by, id)
	if err != nil {
		return nil, err
	}
	if c.Kubeconfig == "" {
		return nil, domain.Refuse(domain.Conflict, "ClusterNotInstalled", "cluster %s has no kubeconfig yet", id)
	}
	return []byte(c.Kubeconfig), nil
}

// ListEvents returns events that the principal may see.
func (s *Clusters) ListEvents(ctx context.Context, by domain.Principal, filter domain.EventFilter) (found domain.List[domain.Event], err error) {
	err = s.engine.View(ctx, func(ctx context.Context, r transaction.Reader) error {
		if filter.ClusterID == "" && filter.InfraEnvID == "" && !by.Admin {
			return domain.Refuse(domain.Invalid, "ScopeMissing", "say of which InfraEnv or cluster: infra_env_id or cluster_id")
		}
		// A query with InfraEnv and cluster shows what the cluster's creator may see; InfraEnv is a filter then.
		if filter.ClusterID != "" {
			if c, err := r.Cluster(ctx, filter.ClusterID); err != nil {
				return err
			} else if c == nil && !by.Admin || c != nil && !by.Owns(c.Owner) {
				return domain.RefuseUnknown("Cluster", filter.ClusterID)
			}
		} else if filter.InfraEnvID != "" {
			if e, err := r.InfraEnv(ctx, filter.InfraEnvID); err != nil {
				return err
			} else if e == nil && !by.Admin || e != nil && !by.Owns(e.Owner) {
				return domain.RefuseUnknown("InfraEnv", filter.InfraEnvID)
			}
		}
		found, err = r.Events(ctx, filter)
		return err
	})
	return found, err
}

// AllowHosts makes an installed cluster take more hosts under the name that clients of assisted-service know: adding-hosts.
func (s *Clusters) AllowHosts(ctx context.Context, by domain.Principal, id string) (*domain.Cluster, error) {
	return s.changeCluster(ctx, by, id, func(_ context.Context, w *transaction.Work, c *domain.Cluster, _ []*domain.Host) error {
		switch c.Status {
		case lifecycle.ClusterInstalled:
			w.EnterCluster(c, lifecycle.ClusterAddingHosts, "Cluster is installed and takes hosts")
		case lifecycle.ClusterAddingHosts:
		default:
			return domain.Refuse(domain.Conflict, "ClusterNotInstalled", "cluster %s is %s: only an installed cluster takes more hosts", id, c.Status)
		}
		return nil
	})
}
