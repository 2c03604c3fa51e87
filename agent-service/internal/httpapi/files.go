// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package httpapi

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/google/uuid"

	"github.com/muster-io/muster/agent-service/api"
	"github.com/muster-io/muster/agent-service/internal/domain"
	"github.com/muster-io/muster/agent-service/internal/httpapi/logarchive"
)

// files are the operations on what is kept with a cluster: manifests, the install configuration, settings of user interfaces, logs.
type files struct{ *server }

// presigned is an address of a cluster's download.
func (s *server) presigned(ctx context.Context, clusterID uuid.UUID, path string, query url.Values) (api.PresignedURL, error) {
	if _, err := s.Service.GetCluster(ctx, principal(ctx), clusterID.String()); err != nil {
		return api.PresignedURL{}, err
	}
	return s.signed(ctx, "/clusters/"+clusterID.String()+path, query)
}

// signed is an address that opens one download without a header, as the caller could open it.
func (s *server) signed(ctx context.Context, path string, query url.Values) (api.PresignedURL, error) {
	address := api.Base + path + "?" + query.Encode()
	raw, expires, err := s.Authority.ForDownload(address, principal(ctx))
	if len(query) > 0 {
		address += "&"
	}
	return api.PresignedURL{URL: s.BaseURL + address + "api_key=" + raw, ExpiresAt: expires}, err
}

// downloadAddress is what a token for one address is compared with.
func downloadAddress(r *http.Request) string {
	query := r.URL.Query()
	query.Del("api_key")
	return r.URL.Path + "?" + query.Encode()
}

// GetPresignedForClusterCredentials implements api.StrictServerInterface.
func (s *files) GetPresignedForClusterCredentials(ctx context.Context, r api.GetPresignedForClusterCredentialsRequestObject) (api.GetPresignedForClusterCredentialsResponseObject, error) {
	if _, err := s.credentials(ctx, r.ClusterID, string(r.Params.FileName)); err != nil {
		return nil, err
	}
	answer, err := s.presigned(ctx, r.ClusterID, "/downloads/credentials", url.Values{"file_name": {string(r.Params.FileName)}})
	return api.GetPresignedForClusterCredentials200JSONResponse(answer), err
}

// GetPresignedForClusterFiles implements api.StrictServerInterface.
func (s *files) GetPresignedForClusterFiles(ctx context.Context, r api.GetPresignedForClusterFilesRequestObject) (api.GetPresignedForClusterFilesResponseObject, error) {
	path, query := "/downloads/files", url.Values{"file_name": {string(r.Params.FileName)}}
	switch r.Params.FileName {
	case api.GetPresignedForClusterFilesParamsFileNameLogs:
		path, query = "/logs", url.Values{}
		if r.Params.LogsType != nil {
			query.Set("logs_type", string(*r.Params.LogsType))
		}
		if r.Params.HostID != nil {
			query.Set("host_id", r.Params.HostID.String())
		}
	case api.GetPresignedForClusterFilesParamsFileNameManifests:
		folder, file, there := strings.Cut(given(r.Params.AdditionalName), "/")
		if !there {
			return nil, invalid("additional_name: name the manifest with its folder, as manifests/file.yaml")
		}
		path, query = "/manifests/files", url.Values{"folder": {folder}, "file_name": {file}}
	default:
	}
	answer, err := s.presigned(ctx, r.ClusterID, path, query)
	return api.GetPresignedForClusterFiles200JSONResponse(answer), err
}

// DownloadClusterFiles implements api.StrictServerInterface.
func (s *files) DownloadClusterFiles(ctx context.Context, r api.DownloadClusterFilesRequestObject) (api.DownloadClusterFilesResponseObject, error) {
	var content []byte
	var err error
	switch r.Params.FileName {
	case "install-config.yaml":
		content, err = s.Service.InstallConfig(ctx, principal(ctx), r.ClusterID.String())
	case "custom_manifests.json", "custom_manifests.yaml":
		content, err = s.manifests(ctx, r.ClusterID.String()) // JSON is YAML, too
	default:
		if _, err = s.Service.GetCluster(ctx, principal(ctx), r.ClusterID.String()); err == nil {
			err = &refusal{http.StatusConflict, "this service makes first-boot data for each host, and no such file for the cluster: ask for the host's"}
		}
	}
	if err != nil {
		return nil, err
	}
	return api.DownloadClusterFiles200ApplicationOctetStreamResponse{FileApplicationOctetStreamResponse: download(string(r.Params.FileName), content)}, nil
}

// manifests are all of a cluster, in the form that creates them.
func (s *files) manifests(ctx context.Context, clusterID string) ([]byte, error) {
	found, err := s.Service.ListManifests(ctx, principal(ctx), clusterID)
	if err != nil {
		return nil, err
	}
	all := []api.CreateManifestParams{}
	for _, m := range found {
		content, err := s.Service.Manifest(ctx, principal(ctx), clusterID, m.Name)
		if err != nil {
			return nil, err
		}
		folder, file, _ := strings.Cut(m.Name, "/")
		all = append(all, api.CreateManifestParams{Folder: api.CreateManifestParamsFolder(folder), FileName: file, Content: base64.StdEncoding.EncodeToString(content)})
	}
	return json.Marshal(all)
}

// GetClusterInstallConfig implements api.StrictServerInterface.
func (s *files) GetClusterInstallConfig(ctx context.Context, r api.GetClusterInstallConfigRequestObject) (api.GetClusterInstallConfigResponseObject, error) {
	config, err := s.Service.InstallConfig(ctx, principal(ctx), r.ClusterID.String())
	return api.GetClusterInstallConfig200JSONResponse(config), err
}

// UpdateClusterInstallConfig implements api.StrictServerInterface.
func (s *files) UpdateClusterInstallConfig(ctx context.Context, r api.UpdateClusterInstallConfigRequestObject) (api.UpdateClusterInstallConfigResponseObject, error) {
	return api.UpdateClusterInstallConfig201Response{}, s.Service.OverrideInstallConfig(ctx, principal(ctx), r.ClusterID.String(), *r.Body)
}

// GetClusterUISettings implements api.StrictServerInterface.
func (s *files) GetClusterUISettings(ctx context.Context, r api.GetClusterUISettingsRequestObject) (api.GetClusterUISettingsResponseObject, error) {
	settings, err := s.Service.SettingsOfUI(ctx, principal(ctx), r.ClusterID.String())
	return api.GetClusterUISettings200JSONResponse(settings), err
}

// UpdateClusterUISettings implements api.StrictServerInterface.
func (s *files) UpdateClusterUISettings(ctx context.Context, r api.UpdateClusterUISettingsRequestObject) (api.UpdateClusterUISettingsResponseObject, error) {
	return api.UpdateClusterUISettings200JSONResponse(*r.Body), s.Service.SetSettingsOfUI(ctx, principal(ctx), r.ClusterID.String(), *r.Body)
}

func manifest(name string) api.Manifest {
	folder, file, _ := strings.Cut(name, "/")
	return api.Manifest{Folder: api.ManifestFolder(folder), FileName: file, ManifestSource: "user"}
}

// ListClusterManifests implements api.StrictServerInterface.
func (s *files) ListClusterManifests(ctx context.Context, r api.ListClusterManifestsRequestObject) (api.ListClusterManifestsResponseObject, error) {
	found, err := s.Service.ListManifests(ctx, principal(ctx), r.ClusterID.String())
	answer := api.ListClusterManifests200JSONResponse{}
	for _, m := range found {
		answer = append(answer, manifest(m.Name))
	}
	return answer, err
}

func inFolder[T ~string](folder T, file string) string {
	return cmp.Or(string(folder), "manifests") + "/" + file
}

var errNotBase64 = invalid("content: it has to be base64")

// CreateClusterManifest implements api.StrictServerInterface.
func (s *files) CreateClusterManifest(ctx context.Context, r api.CreateClusterManifestRequestObject) (api.CreateClusterManifestResponseObject, error) {
	content, err := base64.StdEncoding.DecodeString(r.Body.Content)
	if err != nil {
		return nil, errNotBase64
	}
	name := inFolder(r.Body.Folder, r.Body.FileName)
	return api.CreateClusterManifest201JSONResponse(manifest(name)), s.Service.CreateManifest(ctx, principal(ctx), r.ClusterID.String(), name, content)
}

// UpdateClusterManifest implements api.StrictServerInterface.
func (s *files) UpdateClusterManifest(ctx context.Context, r api.UpdateClusterManifestRequestObject) (api.UpdateClusterManifestResponseObject, error) {
	var content []byte
	if encoded, err := r.Body.UpdatedContent.Get(); err == nil {
		if content, err = base64.StdEncoding.DecodeString(encoded); err != nil || len(content) == 0 {
			return nil, errNotBase64
		}
	}
	name := inFolder(r.Body.Folder, r.Body.FileName)
	folder := cmp.Or(string(value(r.Body.UpdatedFolder)), string(r.Body.Folder))
	renamed := inFolder(folder, cmp.Or(value(r.Body.UpdatedFileName), r.Body.FileName))
	return api.UpdateClusterManifest200JSONResponse(manifest(renamed)), s.Service.UpdateManifest(ctx, principal(ctx), r.ClusterID.String(), name, renamed, content)
}

// DeleteClusterManifest implements api.StrictServerInterface.
func (s *files) DeleteClusterManifest(ctx context.Context, r api.DeleteClusterManifestRequestObject) (api.DeleteClusterManifestResponseObject, error) {
	name := inFolder(given(r.Params.Folder), r.Params.FileName)
	return api.DeleteClusterManifest200Response{}, s.Service.DeleteManifest(ctx, principal(ctx), r.ClusterID.String(), name)
}

// DownloadClusterManifest implements api.StrictServerInterface.
func (s *files) DownloadClusterManifest(ctx context.Context, r api.DownloadClusterManifestRequestObject) (api.DownloadClusterManifestResponseObject, error) {
	content, err := s.Service.Manifest(ctx, principal(ctx), r.ClusterID.String(), inFolder(given(r.Params.Folder), r.Params.FileName))
	if err != nil {
		return nil, err
	}
	return api.DownloadClusterManifest200ApplicationOctetStreamResponse{FileApplicationOctetStreamResponse: download(r.Params.FileName, content)}, nil
}

// UploadLogs implements api.StrictServerInterface.
func (s *files) UploadLogs(ctx context.Context, r api.UploadLogsRequestObject) (api.UploadLogsResponseObject, error) {
	from := domain.HostKey{InfraEnvID: optional(r.Params.InfraEnvID), HostID: optional(r.Params.HostID)}
	if machine := callerOf(ctx).machine; machine != nil {
		from.InfraEnvID, from.HostID = cmp.Or(from.InfraEnvID, machine.InfraEnvID), cmp.Or(from.HostID, machine.HostID)
	}
	if from.HostID == "" || from.InfraEnvID == "" {
		return nil, invalid("infra_env_id and host_id: say which host sends the logs")
	}
	if err := s.mayAct(ctx, from); err != nil {
		return nil, err
	}
	release := s.logs.Take(from)
	if release == nil {
		return nil, domain.Refuse(domain.Unavailable, "LogsBusy", "this host or others send their logs at the moment; try again")
	}
	defer release()
	part, err := r.Body.NextPart()
	for err == nil && part.FormName() != "upfile" {
		part, err = r.Body.NextPart()
	}
	if err != nil {
		return nil, invalid("upfile: the form holds no such file")
	}
	archive, err := io.ReadAll(part)
	if _, large := errors.AsType[*http.MaxBytesError](err); large || len(archive) > maxLogs {
		return nil, &refusal{http.StatusRequestEntityTooLarge, fmt.Sprintf("upfile: an archive of logs has at most %d bytes", maxLogs)}
	}
	if err != nil {
		return nil, invalid("upfile: the file cannot be read")
	}
	return api.UploadLogs204Response{}, s.Service.KeepLogs(ctx, r.ClusterID.String(), from, r.Params.LogsType == "controller", archive)
}

// DownloadClusterLogs implements api.StrictServerInterface.
func (s *files) DownloadClusterLogs(ctx context.Context, r api.DownloadClusterLogsRequestObject) (api.DownloadClusterLogsResponseObject, error) {
	clusterID := r.ClusterID.String()
	name := ""
	switch {
	case r.Params.HostID != nil:
		name = "logs/" + r.Params.HostID.String()
	case given(r.Params.LogsType) == api.DownloadClusterLogsParamsLogsTypeController:
		name = "logs/controller"
	}
	logs := logarchive.Source{
		Read: func(name string) ([]byte, error) { return s.Service.Logs(ctx, principal(ctx), clusterID, name) },
		Turn: func() (func(), error) { return s.downloads.Take(ctx) },
	}
	if name != "" {
		return &logarchive.One{Source: logs, Log: name}, nil
	}
	found, err := s.Service.ListLogs(ctx, principal(ctx), clusterID)
	if err == nil && len(found) == 0 {
		err = &refusal{http.StatusNotFound, "no host of this cluster has sent logs yet"}
	}
	if err != nil {
		return nil, err
	}
	return &logarchive.Archive{Source: logs, Name: "cluster_" + clusterID + "_logs.tar", Logs: found}, nil
}

// UpdateHostLogsProgress implements api.StrictServerInterface.
func (s *files) UpdateHostLogsProgress(ctx context.Context, r api.UpdateHostLogsProgressRequestObject) (api.UpdateHostLogsProgressResponseObject, error) {
	k := key(r.InfraEnvID, r.HostID)
	if err := s.mayAct(ctx, k); err != nil {
		return nil, err
	}
	return api.UpdateHostLogsProgress204Response{}, s.Service.LogsProgress(ctx, k, string(r.Body.LogsState))
}
