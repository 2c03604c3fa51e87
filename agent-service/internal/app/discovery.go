// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/muster-io/muster/agent-service/internal/agentproto"
	"github.com/muster-io/muster/agent-service/internal/domain"
	"github.com/muster-io/muster/agent-service/internal/hardware"
	"github.com/muster-io/muster/agent-service/internal/httpapi"
	"github.com/muster-io/muster/agent-service/internal/image"
	"github.com/muster-io/muster/agent-service/internal/metrics"
	"github.com/muster-io/muster/agent-service/internal/token"
	"github.com/muster-io/muster/apis/buildinfo"
)

// discovery makes discovery images out of InfraEnvs.
type discovery struct {
	// base is how hosts reach the service, images how they reach what serves discovery images.
	base, images string
	// authorities are certificates that hosts trust the service by.
	authorities string
	// settings is a checksum of what every overlay is made of and no InfraEnv says.
	settings  string
	envs      machines
	authority *token.Authority
	// programs are what live images without an agent fetch.
	programs *programs
	// client asks the process that serves images, where that is another one.
	client *http.Client
	// elsewhere are the live images that another process serves, as far as this one was given their list; nil where it serves images itself.
	elsewhere *image.Catalog
	// handler serves images here; nil where another process does.
	handler *image.Handler
	// slow is until when images are not waited for, in nanoseconds.
	slow atomic.Int64
}

// machines reads InfraEnvs, and says what their machines boot.
type machines interface {
	GetInfraEnv(ctx context.Context, by domain.Principal, id string) (*domain.InfraEnv, error)
	BootsFromDisk(ctx context.Context, infraEnvID, mac string) (bool, error)
}

func newDiscovery(o Options, live []image.Version, envs machines, authority *token.Authority, authorities string, programs *programs, log *zap.Logger) *discovery {
	d := &discovery{base: o.BaseURL, images: o.ImageURL, authorities: authorities, envs: envs, authority: authority, programs: programs, client: o.imagesClient()}
	sum := sha256.Sum256(fmt.Appendf(nil, "%q", []string{buildinfo.Version(), o.BaseURL, authorities, agentUnit, fetchAgent, networkUnit, installNetwork}))
	d.settings = hex.EncodeToString(sum[:8])
	if d.images == "" {
		d.images = o.BaseURL
		d.handler = image.New(image.Options{Catalog: &image.Catalog{Directory: o.LiveImageCache, Versions: live, Log: log}, Source: d, URL: o.BaseURL})
	}
	if d.handler == nil {
		d.elsewhere = &image.Catalog{Versions: live}
	}
	return d
}

// imagesClient trusts the server of images by the certificates that machines trust it by, too.
func (o *Options) imagesClient() *http.Client {
	if o.CAFile == "" {
		return remoteClient
	}
	return &http.Client{Timeout: remoteClient.Timeout, Transport: &trusting{file: o.CAFile, system: true}}
}

// mount serves images and says what measures that, or serves what another process needs to serve them.
func (d *discovery) mount(mux *http.ServeMux) []prometheus.Collector {
	mux.HandleFunc("GET "+bootOrderPath+"{key}/ipxe-script", d.serveBootOrder)
	if d.handler == nil {
		mux.Handle("/image-source/", image.NewSourceHandler(d))
		return nil
	}
	mux.Handle("/images/", d.handler)
	mux.Handle("/boot-artifacts/", d.handler)
	return []prometheus.Collector{metrics.NewImages(d.handler)}
}

// answered is an error with the status of its answer.
type answered struct {
	error
	status int
}

// StatusCode is what image.Source asks for.
func (a answered) StatusCode() int { return a.status }

// Describe implements image.Source.
func (d *discovery) Describe(ctx context.Context, key string) (image.Description, error) {
	scope, err := d.authority.VerifyShort(ctx, key)
	if err != nil && domain.KindOf(err) != domain.Unavailable {
		return image.Description{}, answered{errors.New("this address is not valid any more: ask for the image's address again"), http.StatusNotFound}
	}
	if err != nil {
		return image.Description{}, err
	}
	env, err := d.env(ctx, scope.InfraEnvID)
	if err != nil {
		return image.Description{}, err
	}
	program, changed, err := d.programs.sum(env.CPUArchitecture)
	if err != nil {
		return image.Description{}, err
	}
	issued := d.authority.ImageIssued()
	return image.Description{
		ID: env.ID, Revision: fmt.Sprintf("%d/%d/%d/%s/%s", env.ImageUpdatedAt.UnixNano(), env.ImageGeneration, issued.Unix(), program, d.settings),
		Version: env.OSImageVersion, Architecture: hardware.Architecture(env.CPUArchitecture), Minimal: isMinimal(env),
		ModTime: slices.MaxFunc([]time.Time{env.ImageUpdatedAt, changed, issued}, time.Time.Compare),
	}, nil
}

// minimalISO is the type of images whose root file system machines fetch.
const minimalISO = "minimal-iso"

// isMinimal is false where networks are stated: initial RAM disks do not have them in time to fetch a root file system by.
func isMinimal(env *domain.InfraEnv) bool {
	return env.ImageType == minimalISO && len(env.StaticNetworkConfig) == 0
}

// Overlay implements image.Source.
func (d *discovery) Overlay(ctx context.Context, described image.Description) (image.Overlay, error) {
	env, err := d.env(ctx, described.ID)
	if err != nil {
		return image.Overlay{}, err
	}
	return d.overlay(env)
}

func (d *discovery) overlay(env *domain.InfraEnv) (image.Overlay, error) {
	ignition, err := d.ignition(env)
	if err != nil {
		return image.Overlay{}, err
	}
	overlay := image.Overlay{Ignition: ignition}
	for _, a := range env.KernelArguments {
		overlay.KernelArguments = append(overlay.KernelArguments, image.KernelArgument{Operation: a.Operation, Value: a.Value})
	}
	return overlay, nil
}

// check says whether there can be an image of an InfraEnv. The process that serves live images knows which there are; a service without images, nil, makes none.
func (d *discovery) check(env *domain.InfraEnv) error {
	if d == nil {
		return nil
	}
	if d.handler != nil {
		if err := d.handler.Catalog.Check(env.OSImageVersion, hardware.Architecture(env.CPUArchitecture)); err != nil {
			return domain.Refuse(domain.Invalid, "ImageUnknown", "%v", err)
		}
	}
	overlay, err := d.overlay(env)
	if err != nil {
		return err
	}
	err = overlay.Check()
	if large, is := errors.AsType[*image.TooLargeError](err); is {
		return domain.Refuse(domain.Invalid, "ImageTooLarge", "%v", large)
	}
	return err
}

func (d *discovery) env(ctx context.Context, id string) (*domain.InfraEnv, error) {
	env, err := d.envs.GetInfraEnv(ctx, domain.Machine, id)
	if domain.KindOf(err) == domain.NotFound {
		return nil, answered{err, http.StatusNotFound}
	}
	return env, err
}

const (
	// tryFor is how long an image may take that is only tried, and tryBriefly where one took that long in the last slowFor: many InfraEnvs wait one after another.
	tryFor     = 3 * time.Second
	tryBriefly = 200 * time.Millisecond
	slowFor    = time.Minute
)

// obstacle is what keeps the image of a key from being had, nil for nothing or where that is not known.
func (d *discovery) obstacle(ctx context.Context, short string) *image.Obstacle {
	patience := tryFor
	if time.Now().UnixNano() < d.slow.Load() {
		if d.handler == nil {
			return nil
		}
		patience = tryBriefly
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	defer func() {
		if ctx.Err() != nil && patience == tryFor {
			d.slow.Store(time.Now().Add(slowFor).UnixNano())
		}
	}()
	if d.handler != nil {
		return d.handler.Try(ctx, short)
	}
	return image.Try(ctx, d.client, d.images, short)
}

// URL implements httpapi.Images.
func (d *discovery) URL(_ context.Context, env *domain.InfraEnv) (string, error) {
	short, err := d.authority.Short(env.ID, env.Generations)
	if err != nil {
		return "", fmt.Errorf("making the address of the image: %w", err)
	}
	return d.images + "/images/" + short + "/discovery.iso", nil
}

// FileURL implements httpapi.Images.
func (d *discovery) FileURL(_ context.Context, env *domain.InfraEnv, file httpapi.ImageFile) (string, error) {
	short, err := d.authority.Short(env.ID, env.Generations)
	if err != nil {
		return "", fmt.Errorf("making the address of %s: %w", file.Name, err)
	}
	if file.Name != "ipxe-script" {
		return "", domain.Refuse(domain.Invalid, "NoSuchAddress", "%s is downloaded with a token only, from downloads/files", file.Name)
	}
	return d.scriptURL(short, file.ScriptType), nil
}

// Version implements httpapi.Images. Where only another process knows the live images, it is what the InfraEnv asks for.
func (d *discovery) Version(env *domain.InfraEnv) string {
	known := d.elsewhere
	switch {
	case d.handler != nil:
		known = d.handler.Catalog
	case len(known.Versions) == 0:
		return env.OSImageVersion
	}
	return known.Chosen(env.OSImageVersion, hardware.Architecture(env.CPUArchitecture))
}

// File implements httpapi.Images.
func (d *discovery) File(ctx context.Context, env *domain.InfraEnv, file httpapi.ImageFile) ([]byte, error) {
	switch file.Name {
	case "discovery.ign":
		return d.ignition(env)
	case "static-network-config":
		return staticNetworkArchive(env.StaticNetworkConfig)
	default:
		short, err := d.authority.Short(env.ID, env.Generations)
		if err != nil {
			return nil, fmt.Errorf("making the address of the image: %w", err)
		}
		if file.MAC != "" && file.ScriptType != discoveryImageAlways {
			script, err := d.bootOrder(ctx, env.ID, short, file.MAC)
			return []byte(script), err
		}
		if file.ScriptType == bootOrderControl {
			return []byte(d.askAgain(short)), nil
		}
		return d.script(ctx, short)
	}
}

// script is the iPXE script of a key. Where images are served elsewhere, it is read from there: it shows what the live image says.
func (d *discovery) script(ctx context.Context, short string) ([]byte, error) {
	if d.handler != nil {
		script, err := d.handler.Script(ctx, short)
		return []byte(script), refusal(err)
	}
	script, err := image.FetchScript(ctx, d.client, d.images, short)
	return script, refusal(err)
}

// artifacts are what an installed system restarts into that is to run the image of an InfraEnv.
func (d *discovery) artifacts(ctx context.Context, env *domain.InfraEnv) (agentproto.BootArtifactsArgs, error) {
	short, err := d.authority.Short(env.ID, env.Generations)
	if err != nil {
		return agentproto.BootArtifactsArgs{}, fmt.Errorf("making the address of the image: %w", err)
	}
	var found image.Artifacts
	if d.handler != nil {
		found, err = d.handler.Artifacts(ctx, short)
	} else {
		found, err = image.FetchArtifacts(ctx, d.client, d.images, short)
	}
	return agentproto.BootArtifactsArgs{
		KernelURL: found.KernelURL, KernelSHA256: found.KernelSHA256, InitrdURL: found.InitrdURL, InitrdSHA256: found.InitrdSHA256, RootFSURL: found.RootFSURL, CommandLine: found.CommandLine,
	}, refusal(err)
}

// refusal is what to answer where the script of an image cannot be had: what its server would answer.
func refusal(err error) error {
	var said interface{ StatusCode() int }
	_, unknown := errors.AsType[*image.UnknownVersionError](err)
	switch {
	case err == nil || domain.KindOf(err) != "":
		return err
	case unknown, errors.As(err, &said):
		return domain.Refuse(domain.Conflict, "ImageUnknown", "there is no discovery image: %v", err)
	default:
		return domain.Refuse(domain.Unavailable, "ImagesAway", "the live image cannot be had at the moment; try again")
	}
}
