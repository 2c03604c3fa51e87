// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package httpapi

import (
	"context"
	"time"

	"github.com/google/uuid"

	"github.com/muster-io/muster/agent-service/api"
	"github.com/muster-io/muster/agent-service/internal/domain"
	"github.com/muster-io/muster/agent-service/internal/hostlabels"
	"github.com/muster-io/muster/agent-service/internal/machineplan"
)

// AllocateHosts implements api.StrictServerInterface.
func (s *hosts) AllocateHosts(ctx context.Context, r api.AllocateHostsRequestObject) (api.AllocateHostsResponseObject, error) {
	b := r.Body
	selector, err := hostlabels.Parse(b.LabelSelector)
	if err != nil {
		return nil, err
	}
	made, err := s.Service.Allocate(ctx, principal(ctx), domain.NewAllocation{
		Count: b.Count, ClusterID: textOf(value(b.ClusterID)), InfraEnvID: textOf(value(b.InfraEnvID)), Selector: selector, SpreadBy: b.SpreadBy,
		Minimum: machineplan.MinimumOf(b.Minimum.CPUCores, b.Minimum.MemoryGib, b.Minimum.DiskGb), Reserve: time.Duration(b.ReservationMinutes) * time.Minute,
	})
	if err != nil {
		return nil, err
	}
	answer := api.AllocateHosts201JSONResponse{ID: id(made.ID), ClusterID: id(made.ClusterID), ReservedUntil: made.Until, Hosts: make([]api.Host, 0, len(made.Hosts))}
	for i := range made.Hosts {
		answer.Hosts = append(answer.Hosts, s.host(&made.Hosts[i]))
	}
	return answer, nil
}

// EndAllocation implements api.StrictServerInterface.
func (s *hosts) EndAllocation(ctx context.Context, r api.EndAllocationRequestObject) (api.EndAllocationResponseObject, error) {
	return api.EndAllocation204Response{}, s.Service.EndAllocation(ctx, principal(ctx), r.AllocationID.String())
}

// textOf is the text of an id, empty for none.
func textOf(u uuid.UUID) string {
	if u == (uuid.UUID{}) {
		return ""
	}
	return u.String()
}

// reservation is that of a host, zero where it has ended.
func (s *server) reservation(h *domain.Host) api.Reservation {
	if !h.Reservation.Holds(s.Service.Now()) {
		return api.Reservation{}
	}
	return api.Reservation{AllocationID: id(h.Reservation.ID), UserName: h.Reservation.By.User, Until: h.Reservation.Until}
}
