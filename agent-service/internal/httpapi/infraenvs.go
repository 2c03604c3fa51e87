// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package httpapi

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"net/url"

	"github.com/muster-io/muster/agent-service/api"
	"github.com/muster-io/muster/agent-service/internal/domain"
)

// infraEnvs are the operations on InfraEnvs and their images.
type infraEnvs struct{ *server }

// RegisterInfraEnv implements api.StrictServerInterface.
func (s *infraEnvs) RegisterInfraEnv(ctx context.Context, r api.RegisterInfraEnvRequestObject) (api.RegisterInfraEnvResponseObject, error) {
	b := r.Body
	request := domain.NewInfraEnv{Name: b.Name, InfraEnvSettings: domain.InfraEnvSettings{
		OSImageVersion: b.OpenshiftVersion, CPUArchitecture: string(b.CPUArchitecture), ImageType: string(b.ImageType), PullSecret: b.PullSecret,
		Proxy: proxyOf(b.Proxy), NTPSources: value(b.NtpSources), AdditionalNTPSources: value(b.AdditionalNtpSources), SSHAuthorizedKey: value(b.SSHAuthorizedKey),
		StaticNetworkConfig: staticNetwork(value(b.StaticNetworkConfig)), IgnitionConfigOverride: b.IgnitionConfigOverride, KernelArguments: kernelArguments(value(b.KernelArguments)),
		AdditionalTrustBundle: b.AdditionalTrustBundle, RendezvousIP: value(b.RendezvousIP), NetworkDiscoveryDelaySeconds: value(b.NetworkDiscoveryDelaySeconds),
		Wipe: domain.Wipe(b.OnRelease.Wipe),
	}}
	if cluster, err := b.ClusterID.Get(); err == nil {
		request.ClusterID = cluster.String()
	}
	env, err := s.Service.CreateInfraEnv(ctx, principal(ctx), request)
	if err != nil {
		return nil, err
	}
	return api.RegisterInfraEnv201JSONResponse(s.infraEnv(ctx, env)), nil
}

// ListInfraEnvs implements api.StrictServerInterface.
func (s *infraEnvs) ListInfraEnvs(ctx context.Context, r api.ListInfraEnvsRequestObject) (api.ListInfraEnvsResponseObject, error) {
	list, err := whole(r.Params.Limit, r.Params.Offset, func(page domain.Page) (domain.List[domain.InfraEnv], error) {
		return s.Service.ListInfraEnvs(ctx, principal(ctx), domain.InfraEnvFilter{ClusterID: optional(r.Params.ClusterID), Owner: given(r.Params.Owner), Page: page})
	})
	if err != nil {
		return nil, err
	}
	body := make([]api.InfraEnv, 0, len(list.Items))
	for i := range list.Items {
		body = append(body, s.infraEnv(ctx, &list.Items[i]))
	}
	return api.ListInfraEnvs200JSONResponse{Body: body, Headers: api.ListInfraEnvs200ResponseHeaders{XTotalCount: list.Total}}, nil
}

// GetInfraEnv implements api.StrictServerInterface.
func (s *infraEnvs) GetInfraEnv(ctx context.Context, r api.GetInfraEnvRequestObject) (api.GetInfraEnvResponseObject, error) {
	env, err := s.Service.GetInfraEnv(ctx, principal(ctx), r.InfraEnvID.String())
	if err != nil {
		return nil, err
	}
	return api.GetInfraEnv200JSONResponse(s.infraEnv(ctx, env)), nil
}

// UpdateInfraEnv implements api.StrictServerInterface.
func (s *infraEnvs) UpdateInfraEnv(ctx context.Context, r api.UpdateInfraEnvRequestObject) (api.UpdateInfraEnvResponseObject, error) {
	b := r.Body
	env, err := s.Service.UpdateInfraEnv(ctx, principal(ctx), r.InfraEnvID.String(), func(settings *domain.InfraEnvSettings) error {
		set(&settings.PullSecret, b.PullSecret)
		setAs(&settings.ImageType, b.ImageType, func(t api.ImageType) string { return string(t) })
		set(&settings.OSImageVersion, b.OpenshiftVersion)
		setProxy(&settings.Proxy, b)
		set(&settings.NTPSources, b.NtpSources)
		set(&settings.AdditionalNTPSources, b.AdditionalNtpSources)
		set(&settings.SSHAuthorizedKey, b.SSHAuthorizedKey)
		setList(&settings.StaticNetworkConfig, b.StaticNetworkConfig, staticNetwork)
		set(&settings.RendezvousIP, b.RendezvousIP)
		set(&settings.IgnitionConfigOverride, b.IgnitionConfigOverride)
		setList(&settings.KernelArguments, b.KernelArguments, kernelArguments)
		set(&settings.AdditionalTrustBundle, b.AdditionalTrustBundle)
		set(&settings.NetworkDiscoveryDelaySeconds, b.NetworkDiscoveryDelaySeconds)
		setAs(&settings.Wipe, b.OnRelease, func(r api.OnRelease) domain.Wipe { return domain.Wipe(r.Wipe) })
		return nil
	})
	if err != nil {
		return nil, err
	}
	return api.UpdateInfraEnv201JSONResponse(s.infraEnv(ctx, env)), nil
}

// DeregisterInfraEnv implements api.StrictServerInterface.
func (s *infraEnvs) DeregisterInfraEnv(ctx context.Context, r api.DeregisterInfraEnvRequestObject) (api.DeregisterInfraEnvResponseObject, error) {
	return api.DeregisterInfraEnv204Response{}, s.Service.DeleteInfraEnv(ctx, principal(ctx), r.InfraEnvID.String(), false)
}

// RegenerateInfraEnvSigningKey implements api.StrictServerInterface.
func (s *infraEnvs) RegenerateInfraEnvSigningKey(ctx context.Context, r api.RegenerateInfraEnvSigningKeyRequestObject) (api.RegenerateInfraEnvSigningKeyResponseObject, error) {
	_, err := s.Service.RotateTokens(ctx, principal(ctx), r.InfraEnvID.String(), false)
	return api.RegenerateInfraEnvSigningKey204Response{}, err
}

// RevokeInfraEnvHostTokens implements api.StrictServerInterface.
func (s *infraEnvs) RevokeInfraEnvHostTokens(ctx context.Context, r api.RevokeInfraEnvHostTokensRequestObject) (api.RevokeInfraEnvHostTokensResponseObject, error) {
	return api.RevokeInfraEnvHostTokens204Response{}, s.Service.RevokeHostTokens(ctx, principal(ctx), r.InfraEnvID.String())
}

// onRelease says what is done with hosts of an InfraEnv before they are free again.
func onRelease(wipe domain.Wipe) api.OnRelease {
	return api.OnRelease{Wipe: api.OnReleaseWipe(cmp.Or(wipe, domain.WipeNone))}
}

// NoImages is why a service without live images has no discovery images.
const NoImages = "this service has no discovery images: build our own live image with make live-image, or name others with --live-images, and start the service again"

var errNoImages = &refusal{http.StatusConflict, NoImages}

// GetInfraEnvDownloadURL implements api.StrictServerInterface.
func (s *infraEnvs) GetInfraEnvDownloadURL(ctx context.Context, r api.GetInfraEnvDownloadURLRequestObject) (api.GetInfraEnvDownloadURLResponseObject, error) {
	env, err := s.withImages(ctx, r.InfraEnvID.String())
	if err != nil {
		return nil, err
	}
	address, err := s.Images.URL(ctx, env)
	if err != nil {
		return nil, err
	}
	return api.GetInfraEnvDownloadURL200JSONResponse{URL: address}, nil
}

// GetInfraEnvPresignedFileURL implements api.StrictServerInterface.
func (s *infraEnvs) GetInfraEnvPresignedFileURL(ctx context.Context, r api.GetInfraEnvPresignedFileURLRequestObject) (api.GetInfraEnvPresignedFileURLResponseObject, error) {
	env, err := s.withImages(ctx, r.InfraEnvID.String())
	if err != nil {
		return nil, err
	}
	if r.Params.FileName == api.GetInfraEnvPresignedFileURLParamsFileNameDiscoveryIgn {
		answer, err := s.signed(ctx, "/infra-envs/"+env.ID+"/downloads/files", url.Values{"file_name": {string(r.Params.FileName)}})
		return api.GetInfraEnvPresignedFileURL200JSONResponse(answer), err
	}
	address, err := s.Images.FileURL(ctx, env, ImageFile{Name: string(r.Params.FileName), ScriptType: string(given(r.Params.IpxeScriptType))})
	if err != nil {
		return nil, err
	}
	return api.GetInfraEnvPresignedFileURL200JSONResponse{URL: address}, nil
}

// DownloadInfraEnvFiles implements api.StrictServerInterface.
func (s *infraEnvs) DownloadInfraEnvFiles(ctx context.Context, r api.DownloadInfraEnvFilesRequestObject) (api.DownloadInfraEnvFilesResponseObject, error) {
	env, err := s.withImages(ctx, r.InfraEnvID.String())
	if err != nil {
		return nil, err
	}
	content, err := s.Images.File(ctx, env, ImageFile{
		Name: string(r.Params.FileName), MAC: given(r.Params.Mac), ScriptType: string(given(r.Params.IpxeScriptType)), ISOType: string(given(r.Params.DiscoveryIsoType)),
	})
	if err != nil {
		return nil, err
	}
	name := string(r.Params.FileName)
	if r.Params.FileName == api.DownloadInfraEnvFilesParamsFileNameStaticNetworkConfig {
		name = "static_network_config.tar"
	}
	return api.DownloadInfraEnvFiles200ApplicationOctetStreamResponse{FileApplicationOctetStreamResponse: api.FileApplicationOctetStreamResponse{
		Body: bytes.NewReader(content), ContentLength: int64(len(content)), Headers: api.FileResponseHeaders{
			ContentDisposition: `attachment; filename="` + name + `"`, LastModified: env.ImageUpdatedAt.UTC().Format(http.TimeFormat),
		},
	}}, nil
}

func (s *server) withImages(ctx context.Context, infraEnvID string) (*domain.InfraEnv, error) {
	env, err := s.Service.GetInfraEnv(ctx, principal(ctx), infraEnvID)
	if err == nil && s.Images == nil {
		err = errNoImages
	}
	return env, err
}

// infraEnv is the answer about an infra-env; it shows that there is a pull secret, not the secret.
func (s *server) infraEnv(ctx context.Context, env *domain.InfraEnv) api.InfraEnv {
	shown := api.InfraEnv{
		Kind: api.InfraEnvKindInfraEnv, ID: id(env.ID), Href: api.Base + "/infra-envs/" + env.ID, Name: env.Name, UserName: env.User, OrgID: env.Organization,
		ClusterID: id(env.ClusterID), OpenshiftVersion: env.OSImageVersion, CPUArchitecture: api.CPUArchitecture(env.CPUArchitecture), Type: api.ImageType(env.ImageType),
		NtpSources: env.NTPSources, AdditionalNtpSources: env.AdditionalNTPSources, SSHAuthorizedKey: env.SSHAuthorizedKey, PullSecretSet: env.PullSecret != "",
		StaticNetworkConfig: string(env.StaticNetworkConfig), RendezvousIP: env.RendezvousIP, IgnitionConfigOverride: env.IgnitionConfigOverride,
		KernelArguments: text(env.KernelArguments), AdditionalTrustBundle: env.AdditionalTrustBundle, NetworkDiscoveryDelaySeconds: env.NetworkDiscoveryDelaySeconds, OnRelease: onRelease(env.Wipe), AgentLabels: env.AgentLabels,
		CreatedAt: env.CreatedAt, UpdatedAt: env.UpdatedAt, Proxy: shownProxy(proxyFor(ctx, env.Proxy)), CustomResource: api.CustomResource{Namespace: env.Kube.Namespace, Name: env.Kube.Name},
	}
	if principal(ctx).ReadOnly { // first-boot data has keys and hashes of passwords, and networks have passwords: of 802.1X, MACsec or IPsec
		shown.IgnitionConfigOverride, shown.StaticNetworkConfig = "", ""
	}
	if s.Images != nil && shown.OpenshiftVersion == "" {
		shown.OpenshiftVersion = s.Images.Version(env)
	}
	if s.Images != nil && callerOf(ctx).machine == nil && !principal(ctx).ReadOnly { // the address holds a token
		if address, err := s.Images.URL(ctx, env); err == nil {
			shown.DownloadURL = address
		}
	}
	return shown
}

func proxyOf(p api.Proxy) domain.Proxy {
	return domain.Proxy{HTTP: value(p.HTTPProxy), HTTPS: value(p.HTTPSProxy), NoProxy: value(p.NoProxy)}
}

func setProxy(into *domain.Proxy, b *api.UpdateInfraEnvJSONRequestBody) {
	proxy, err := b.Proxy.Get()
	if err != nil {
		if b.Proxy.IsNull() {
			*into = domain.Proxy{}
		}
		return
	}
	set(&into.HTTP, proxy.HTTPProxy)
	set(&into.HTTPS, proxy.HTTPSProxy)
	set(&into.NoProxy, proxy.NoProxy)
}

func shownProxy(p domain.Proxy) api.Proxy {
	var shown api.Proxy
	if p.HTTP != "" {
		shown.HTTPProxy.Set(p.HTTP)
	}
	if p.HTTPS != "" {
		shown.HTTPSProxy.Set(p.HTTPS)
	}
	if p.NoProxy != "" {
		shown.NoProxy.Set(p.NoProxy)
	}
	return shown
}

func staticNetwork(configs []api.HostStaticNetworkConfig) json.RawMessage {
	if len(configs) == 0 {
		return nil
	}
	return json.RawMessage(text(configs))
}

func kernelArguments(arguments []api.KernelArgument) []domain.KernelArgument {
	var found []domain.KernelArgument
	for _, a := range arguments {
		found = append(found, domain.KernelArgument{Operation: string(a.Operation), Value: a.Value})
	}
	return found
}
