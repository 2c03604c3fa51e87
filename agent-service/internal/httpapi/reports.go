// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package httpapi

import (
	"context"

	"github.com/google/uuid"

	"github.com/muster-io/muster/agent-service/api"
	"github.com/muster-io/muster/agent-service/internal/domain"
)

// Reports of assisted-service's controllers in installed clusters are answered, so that they go on. This service installs no operators.

// inCluster lets the owner of a cluster pass, and machines that are in it.
func (s *machines) inCluster(ctx context.Context, clusterID uuid.UUID) error {
	c := callerOf(ctx)
	if c.machine == nil {
		_, err := s.Service.GetCluster(ctx, c.person, clusterID.String())
		return err
	}
	found, err := s.Service.ListHosts(ctx, domain.Machine, domain.HostFilter{
		InfraEnvID: c.machine.InfraEnvID, HostID: c.machine.HostID, ClusterID: clusterID.String(), Page: domain.Page{Limit: 1},
	})
	if err == nil && found.Total == 0 {
		err = errNotFound
	}
	return err
}

// DownloadMinimalInitrd implements api.StrictServerInterface.
func (s *machines) DownloadMinimalInitrd(ctx context.Context, r api.DownloadMinimalInitrdRequestObject) (api.DownloadMinimalInitrdResponseObject, error) {
	_, err := s.Service.GetInfraEnv(ctx, principal(ctx), r.InfraEnvID.String())
	return api.DownloadMinimalInitrd204Response{}, err
}

// ListMonitoredOperators implements api.StrictServerInterface.
func (s *machines) ListMonitoredOperators(ctx context.Context, r api.ListMonitoredOperatorsRequestObject) (api.ListMonitoredOperatorsResponseObject, error) {
	return api.ListMonitoredOperators200JSONResponse{}, s.inCluster(ctx, r.ClusterID)
}

// ReportMonitoredOperatorStatus implements api.StrictServerInterface.
func (s *machines) ReportMonitoredOperatorStatus(ctx context.Context, r api.ReportMonitoredOperatorStatusRequestObject) (api.ReportMonitoredOperatorStatusResponseObject, error) {
	return api.ReportMonitoredOperatorStatus200Response{}, s.inCluster(ctx, r.ClusterID)
}

// UploadClusterIngressCert implements api.StrictServerInterface.
func (s *machines) UploadClusterIngressCert(ctx context.Context, r api.UploadClusterIngressCertRequestObject) (api.UploadClusterIngressCertResponseObject, error) {
	return api.UploadClusterIngressCert201Response{}, s.inCluster(ctx, r.ClusterID)
}

// UpdateClusterFinalizingProgress implements api.StrictServerInterface.
func (s *machines) UpdateClusterFinalizingProgress(ctx context.Context, r api.UpdateClusterFinalizingProgressRequestObject) (api.UpdateClusterFinalizingProgressResponseObject, error) {
	return api.UpdateClusterFinalizingProgress200Response{}, s.inCluster(ctx, r.ClusterID)
}
