// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package service

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/muster-io/muster/agent-service/internal/allocation"
	"github.com/muster-io/muster/agent-service/internal/domain"
	"github.com/muster-io/muster/agent-service/internal/lifecycle"
	"github.com/muster-io/muster/agent-service/internal/transaction"
)

// Allocate binds free hosts of the principal to a cluster, or reserves them, in one transaction: as many as the request says, or none. Conflict TooFewHosts says with numbers
// why there are too few. Nothing is locked while hosts are chosen; where one of them was taken meanwhile, others are chosen. An allocation with an ID is the same however often it
// is asked for, and whichever replicas ask at the same moment.
func (s *Hosts) Allocate(ctx context.Context, by domain.Principal, request domain.NewAllocation) (*domain.Allocation, error) {
	for {
		var keys []domain.HostKey
		var held []domain.Host
		err := s.engine.View(ctx, func(ctx context.Context, r transaction.Reader) (err error) {
			keys, held, err = s.choose(ctx, r, by, request)
			return err
		})
		if err != nil {
			return nil, err
		}
		if len(held) > 0 {
			made, err := s.settle(ctx, request, held)
			if made != nil || err != nil {
				return made, err
			}
			continue
		}
		var made *domain.Allocation
		err = s.engine.Update(ctx, func(ctx context.Context, w *transaction.Work) error {
			made, err = s.take(ctx, w, by, request, keys)
			return err
		}, request.ClusterID)
		if err != nil {
			return nil, err
		}
		if made != nil && request.ID == "" {
			return made, nil
		}
	}
}

// settle returns an allocation that has its hosts. Replicas that asked at the same moment may have reserved more than it says: all of them keep the same ones, and end the rest.
// Where hosts are missing, all are free again, and nil is returned.
func (s *Hosts) settle(ctx context.Context, request domain.NewAllocation, held []domain.Host) (*domain.Allocation, error) {
	slices.SortFunc(held, func(a, b domain.Host) int { return strings.Compare(a.String(), b.String()) })
	keep := request.Count
	if len(held) < keep {
		keep = 0
	}
	if err := s.endReservations(ctx, request.ID, keysOf(held[keep:], func(*domain.Host) bool { return true })); err != nil && domain.KindOf(err) != domain.NotFound {
		return nil, err
	}
	if keep == 0 {
		return nil, nil
	}
	return &domain.Allocation{ID: request.ID, Until: held[0].Reservation.Until, Hosts: held[:keep]}, nil
}

// choose returns the hosts that suit a request best, or those that it has reserved already.
func (s *Hosts) choose(ctx context.Context, r transaction.Reader, by domain.Principal, request domain.NewAllocation) (keys []domain.HostKey, held []domain.Host, err error) {
	if request.InfraEnvID != "" {
		if _, err := transaction.OwnInfraEnv(ctx, r, by, request.InfraEnvID); err != nil {
			return nil, nil, err
		}
	}
	var cluster *domain.Cluster
	if request.ClusterID != "" {
		if cluster, err = transaction.OwnCluster(ctx, r, by, request.ClusterID); err != nil {
			return nil, nil, err
		}
	}
	hosts, err := hostsOf(ctx, r, by, domain.HostFilter{InfraEnvID: request.InfraEnvID})
	if err != nil {
		return nil, nil, err
	}
	for i := range hosts {
		if of := hosts[i].Reservation; request.ID != "" && of.ID == request.ID && of.Holds(s.engine.Now()) {
			held = append(held, hosts[i])
		}
	}
	if len(held) > 0 {
		return nil, held, nil
	}
	chooser, err := s.chooser(ctx, r, by, request, cluster, hosts)
	if err != nil {
		return nil, nil, err
	}
	keys, err = chooser.Choose(hosts)
	return keys, nil, err
}

// chooser reads the InfraEnvs of hosts.
func (s *Hosts) chooser(ctx context.Context, r transaction.InfraEnvReader, by domain.Principal, request domain.NewAllocation, cluster *domain.Cluster, hosts []domain.Host) (*allocation.Chooser, error) {
	if cluster != nil && !lifecycle.Accepts(cluster.Status) {
		return nil, domain.Refuse(domain.Conflict, "ClusterNotAccepting", "cluster %s is %s and takes no hosts now", cluster.ID, cluster.Status)
	}
	c := &allocation.Chooser{
		By: by, Request: request, Cluster: cluster, InfraEnvs: map[string]*domain.InfraEnv{}, Now: s.engine.Now().UTC(), Connected: s.engine.Hosts.Connected, Seen: s.Seen,
	}
	for i := range hosts {
		id := hosts[i].InfraEnvID
		if _, known := c.InfraEnvs[id]; known {
			continue
		}
		e, err := r.InfraEnv(ctx, id)
		if err != nil {
			return nil, err
		}
		c.InfraEnvs[id] = e
	}
	return c, nil
}

// take binds or reserves the hosts that were chosen, and locks no others. It is nil where another transaction took one of them meanwhile.
func (s *Hosts) take(ctx context.Context, w *transaction.Work, by domain.Principal, request domain.NewAllocation, keys []domain.HostKey) (*domain.Allocation, error) {
	made := &domain.Allocation{ID: cmp.Or(request.ID, uuid.NewString()), ClusterID: request.ClusterID}
	var cluster *domain.Cluster
	var err error
	if request.ClusterID != "" {
		if cluster, err = w.OwnCluster(ctx, by, request.ClusterID); err != nil {
			return nil, err
		}
	}
	hosts, err := w.TrackHosts(ctx, keys)
	if err != nil {
		return nil, err
	}
	chooser, err := s.chooser(ctx, w, by, request, cluster, copies(hosts))
	if err != nil {
		return nil, err
	}
	if !chooser.Stands(hosts) {
		return nil, nil
	}
	if cluster != nil {
		err = w.BindAll(ctx, by, hosts, cluster)
	} else {
		made.Until = w.Now.Add(cmp.Or(request.Reserve, domain.DefaultReservation)).Truncate(time.Second)
		for _, h := range hosts {
			h.Reservation = domain.Reservation{ID: made.ID, By: by.Owner(), Until: made.Until, Kube: request.Kube}
			w.Tell(h, "", domain.Info, "host_reserved", true, "Host %s: reserved until %s", h.Label(), made.Until.Format(time.RFC3339))
		}
	}
	made.Hosts = copies(hosts)
	return made, err
}

func copies(hosts []*domain.Host) []domain.Host {
	made := make([]domain.Host, 0, len(hosts))
	for _, h := range hosts {
		made = append(made, *h)
	}
	return made
}

// EndAllocation ends the reservation of the hosts of an allocation that the principal owns. NotFound where no host is reserved by it.
func (s *Hosts) EndAllocation(ctx context.Context, by domain.Principal, id string) error {
	var keys []domain.HostKey
	err := s.engine.View(ctx, func(ctx context.Context, r transaction.Reader) error {
		all, err := hostsOf(ctx, r, by, domain.HostFilter{Unbound: true})
		keys = keysOf(all, func(h *domain.Host) bool { return h.Reservation.ID == id && by.Owns(h.Owner) })
		return err
	})
	if err != nil {
		return err
	}
	return s.endReservations(ctx, id, keys)
}

// endReservations ends what an allocation still reserves of these hosts. NotFound where that is none.
func (s *Hosts) endReservations(ctx context.Context, id string, keys []domain.HostKey) error {
	return s.engine.Update(ctx, func(ctx context.Context, w *transaction.Work) error {
		hosts, err := w.TrackHosts(ctx, keys)
		if err != nil {
			return err
		}
		ended := 0
		for _, h := range hosts {
			if h.Reservation.ID == id && h.Reservation.Holds(w.Now) {
				h.Reservation = domain.Reservation{}
				w.Tell(h, "", domain.Info, "host_reservation_ended", true, "Host %s: the reservation was ended", h.Label())
				ended++
			}
		}
		if ended == 0 {
			return domain.RefuseUnknown("Allocation", id)
		}
		return nil
	})
}

// hostsOf are all hosts of a filter, of all pages.
func hostsOf(ctx context.Context, r transaction.Reader, by domain.Principal, filter domain.HostFilter) ([]domain.Host, error) {
	var all []domain.Host
	for filter.Limit = 5000; ; filter.Offset = len(all) {
		found, err := r.Hosts(ctx, domain.Scope{Principal: by}, filter)
		if err != nil {
			return nil, err
		}
		if all = append(all, found.Items...); len(found.Items) == 0 || len(all) >= found.Total {
			return all, nil
		}
	}
}

func keysOf(hosts []domain.Host, which func(*domain.Host) bool) []domain.HostKey {
	var keys []domain.HostKey
	for i := range hosts {
		if which(&hosts[i]) {
			keys = append(keys, hosts[i].HostKey)
		}
	}
	return keys
}
