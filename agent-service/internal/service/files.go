// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package service

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/muster-io/muster/agent-service/internal/lifecycle"
	"github.com/muster-io/muster/agent-service/internal/validate"
)

// Bounds of what is kept with a cluster.
const (
	// MaxManifest is how large one manifest may be, and MaxManifests how many there may be.
	MaxManifest  = 1 << 20
	MaxManifests = 128
	maxText      = 256 << 10
	// maxManifestsSize is what all manifests of a cluster have together: they travel in one host's first-boot data.
	maxManifestsSize = 8 << 20
)

// Names of files of a cluster. Manifests are below manifests/ and openshift/, logs below logs/.
const (
	overridesFile  = "install-config-overrides"
	settingsOfUI   = "ui-settings"
	logsFolder     = "logs/"
	logsController = "logs/controller"
)

// FileInfo is a file that is kept with a cluster.
type FileInfo struct {
	Name      string
	Size      int64
	UpdatedAt time.Time
}

// ManifestFolders are where manifests of a cluster can be.
var ManifestFolders = []string{"manifests", "openshift"}

func isManifest(name string) bool {
	folder, file, there := strings.Cut(name, "/")
	return there && file != "" && !strings.Contains(file, "/") && slices.Contains(ManifestFolders, folder)
}

// ListManifests implements Files.
func (s *Service) ListManifests(ctx context.Context, by Principal, clusterID string) ([]FileInfo, error) {
	files, err := s.files(ctx, by, clusterID)
	return slices.DeleteFunc(files, func(f FileInfo) bool { return !isManifest(f.Name) }), err
}

func (s *Service) files(ctx context.Context, by Principal, clusterID string) (files []FileInfo, err error) {
	err = s.view(ctx, func(ctx context.Context, r Reader) error {
		if c, err := r.Cluster(ctx, clusterID); err != nil {
			return err
		} else if c == nil || !by.Owns(c.Owner) {
			return notFound("Cluster", clusterID)
		}
		files, err = r.Files(ctx, clusterID)
		return err
	})
	return files, err
}

// file is the content of one, nil without one.
func (s *Service) file(ctx context.Context, by Principal, clusterID, name string) (content []byte, err error) {
	err = s.view(ctx, func(ctx context.Context, r Reader) error {
		if c, err := r.Cluster(ctx, clusterID); err != nil {
			return err
		} else if c == nil || !by.Owns(c.Owner) {
			return notFound("Cluster", clusterID)
		}
		content, err = r.File(ctx, clusterID, name)
		return err
	})
	return content, err
}

// Manifest implements Files.
func (s *Service) Manifest(ctx context.Context, by Principal, clusterID, name string) ([]byte, error) {
	content, err := s.file(ctx, by, clusterID, name)
	if err == nil && (content == nil || !isManifest(name)) {
		return nil, notFound("Manifest", bound(name, 256))
	}
	return content, err
}

// CreateManifest implements Files.
func (s *Service) CreateManifest(ctx context.Context, by Principal, clusterID, name string, content []byte) error {
	return s.changeManifests(ctx, by, clusterID, func(ctx context.Context, w *work, there []FileInfo) error {
		manifests, size := 1, int64(len(content))
		for _, f := range there {
			if isManifest(f.Name) && f.Name != name {
				manifests++
				size += f.Size
			}
		}
		if manifests > MaxManifests || size > maxManifestsSize {
			return Refuse(Conflict, "TooManyManifests", "a cluster has at most %d manifests of %d bytes together", MaxManifests, maxManifestsSize)
		}
		return w.putManifest(ctx, clusterID, name, content)
	})
}

// UpdateManifest implements Files.
func (s *Service) UpdateManifest(ctx context.Context, by Principal, clusterID, name, newName string, content []byte) error {
	return s.changeManifests(ctx, by, clusterID, func(ctx context.Context, w *work, there []FileInfo) error {
		has := func(name string) bool {
			return slices.ContainsFunc(there, func(f FileInfo) bool { return f.Name == name })
		}
		if !isManifest(name) || !has(name) {
			return notFound("Manifest", bound(name, 256))
		}
		if newName != name && has(newName) {
			return Refuse(Conflict, "AlreadyExists", "there is a manifest %s already", newName)
		}
		if content == nil {
			var err error
			if content, err = w.File(ctx, clusterID, name); err != nil {
				return err
			}
		}
		if newName != name {
			if err := w.DeleteFile(ctx, clusterID, name); err != nil {
				return err
			}
		}
		return w.putManifest(ctx, clusterID, newName, content)
	})
}

// DeleteManifest implements Files.
func (s *Service) DeleteManifest(ctx context.Context, by Principal, clusterID, name string) error {
	return s.changeManifests(ctx, by, clusterID, func(ctx context.Context, w *work, there []FileInfo) error {
		if !isManifest(name) || !slices.ContainsFunc(there, func(f FileInfo) bool { return f.Name == name }) {
			return notFound("Manifest", bound(name, 256))
		}
		return w.DeleteFile(ctx, clusterID, name)
	})
}

func (w *work) putManifest(ctx context.Context, clusterID, name string, content []byte) error {
	if !isManifest(name) || len(name) > 512 {
		return Refuse(Invalid, "ManifestNameInvalid", "%q: a manifest is a file in manifests or openshift", bound(name, 64))
	}
	if len(content) == 0 || len(content) > MaxManifest {
		return Refuse(Invalid, "ManifestInvalid", "a manifest has 1 to %d bytes", MaxManifest)
	}
	var parsed any
	for document := range strings.SplitSeq(string(content), "\n---") {
		if err := yaml.Unmarshal([]byte(document), &parsed); err != nil {
			return Refuse(Invalid, "ManifestInvalid", "manifest %s is neither YAML nor JSON", name)
		}
	}
	return w.PutFile(ctx, clusterID, name, content, w.now)
}

func (s *Service) changeManifests(ctx context.Context, by Principal, clusterID string, do func(ctx context.Context, w *work, there []FileInfo) error) error {
	return s.changeFiles(ctx, by, clusterID, func(ctx context.Context, w *work) error {
		there, err := w.Files(ctx, clusterID)
		if err != nil {
			return err
		}
		return do(ctx, w, there)
	})
}

// changeFiles runs a transaction about what an installation is made from.
func (s *Service) changeFiles(ctx context.Context, by Principal, clusterID string, do func(ctx context.Context, w *work) error) error {
	return s.update(ctx, func(ctx context.Context, w *work) error {
		c, err := w.ownCluster(ctx, by, clusterID)
		if err != nil {
			return err
		}
		if lifecycle.ClusterBusy(c.Status) {
			return Refuse(Conflict, "ClusterInstalling", "cluster %s is being installed: cancel the installation first", clusterID)
		}
		return do(ctx, w)
	}, clusterID)
}

// InstallConfig implements Files.
func (s *Service) InstallConfig(ctx context.Context, by Principal, clusterID string) ([]byte, error) {
	c, err := s.GetCluster(ctx, by, clusterID)
	if err != nil {
		return nil, err
	}
	config := c.installConfig()
	overrides, err := s.file(ctx, by, clusterID, overridesFile)
	if err != nil {
		return nil, err
	}
	if overrides != nil {
		var patch map[string]any
		if err := json.Unmarshal(overrides, &patch); err != nil {
			return nil, fmt.Errorf("reading the overrides of cluster %s: %w", clusterID, err)
		}
		merge(config, patch)
	}
	return yaml.Marshal(config)
}

// OverrideInstallConfig implements Files.
func (s *Service) OverrideInstallConfig(ctx context.Context, by Principal, clusterID, overrides string) error {
	var patch map[string]any
	if len(overrides) > maxText || json.Unmarshal([]byte(cmp.Or(overrides, "{}")), &patch) != nil || patch == nil {
		return Refuse(Invalid, "InstallConfigInvalid", "the overrides are no JSON object of at most %d bytes", maxText)
	}
	if _, secret := patch["pullSecret"]; secret {
		return Refuse(Invalid, "InstallConfigInvalid", "the pull secret is a field of the cluster of its own: set pull_secret there")
	}
	return s.changeFiles(ctx, by, clusterID, func(ctx context.Context, w *work) error {
		if len(patch) == 0 {
			return w.DeleteFile(ctx, clusterID, overridesFile)
		}
		return w.PutFile(ctx, clusterID, overridesFile, []byte(overrides), w.now)
	})
}

// merge lays one tree over another; null takes a branch away.
func merge(into, over map[string]any) {
	for key, value := range over {
		branch, isBranch := value.(map[string]any)
		below, wasBranch := into[key].(map[string]any)
		switch {
		case value == nil:
			delete(into, key)
		case isBranch && wasBranch:
			merge(below, branch)
		default:
			into[key] = value
		}
	}
}

// installConfig is the cluster as installers describe it, without its pull secret.
func (c *Cluster) installConfig() map[string]any {
	list := func(values []string, field string) []any {
		var found []any
		for _, v := range values {
			one := map[string]any{field: v}
			if field == "cidr" {
				one["hostPrefix"] = 23
			}
			found = append(found, one)
		}
		return found
	}
	networking := map[string]any{"networkType": "OVNKubernetes"}
	for field, values := range map[string][]any{"machineNetwork": list(c.MachineNetworks, "cidr"), "clusterNetwork": list(c.ClusterNetworks, "cidr")} {
		for _, v := range values {
			if field == "machineNetwork" {
				delete(v.(map[string]any), "hostPrefix")
			}
		}
		if len(values) > 0 {
			networking[field] = values
		}
	}
	if len(c.ServiceNetworks) > 0 {
		networking["serviceNetwork"] = c.ServiceNetworks
	}
	platform := map[string]any{"none": map[string]any{}}
	if len(c.APIVIPs) > 0 && !c.UserManagedNetworking {
		platform = map[string]any{"baremetal": map[string]any{"apiVIPs": c.APIVIPs, "ingressVIPs": c.IngressVIPs}}
	}
	config := map[string]any{
		"apiVersion": "v1", "metadata": map[string]any{"name": c.Name}, "baseDomain": c.BaseDNSDomain, "networking": networking, "platform": platform,
		"controlPlane": map[string]any{"name": "master", "replicas": c.ControlPlaneCount}, "compute": []any{map[string]any{"name": "worker", "replicas": c.WorkerCount}},
	}
	if c.SSHPublicKey != "" {
		config["sshKey"] = c.SSHPublicKey
	}
	if c.Proxy != (Proxy{}) {
		proxy := map[string]any{"httpProxy": c.Proxy.HTTP, "httpsProxy": c.Proxy.HTTPS, "noProxy": c.Proxy.NoProxy}
		maps.DeleteFunc(proxy, func(_ string, v any) bool { return v == "" })
		config["proxy"] = proxy
	}
	return config
}

// SettingsOfUI implements Files.
func (s *Service) SettingsOfUI(ctx context.Context, by Principal, clusterID string) (string, error) {
	content, err := s.file(ctx, by, clusterID, settingsOfUI)
	return string(content), err
}

// SetSettingsOfUI implements Files.
func (s *Service) SetSettingsOfUI(ctx context.Context, by Principal, clusterID, settings string) error {
	if len(settings) > maxText {
		return Refuse(Invalid, "SettingsTooLarge", "the settings have at most %d bytes", maxText)
	}
	return s.update(ctx, func(ctx context.Context, w *work) error {
		if _, err := w.ownCluster(ctx, by, clusterID); err != nil {
			return err
		}
		return w.PutFile(ctx, clusterID, settingsOfUI, []byte(settings), w.now)
	}, clusterID)
}

// KeepLogs implements Files.
func (s *Service) KeepLogs(ctx context.Context, clusterID string, from HostKey, controller bool, archive []byte) error {
	return s.update(ctx, func(ctx context.Context, w *work) error {
		h, err := w.host(ctx, from)
		if err != nil {
			return err
		}
		c, err := w.cluster(ctx, clusterID)
		if err != nil {
			return err
		}
		if h == nil || c == nil || !h.owesLogs(clusterID) {
			return notFound("Cluster", clusterID)
		}
		name := logsFolder + h.HostID
		if controller {
			name = logsController
		} else {
			h.LogsState, h.LogsAt = "completed", w.now
		}
		return w.PutFile(ctx, clusterID, name, archive, w.now)
	}, clusterID)
}

// owesLogs is true for the cluster that the host is bound to, and for the one that it left until it boots again: what is sent until then is of that installation. Logs belong
// to the cluster, and stay with it when the host is freed or deleted.
func (h *Host) owesLogs(clusterID string) bool {
	return h.ClusterID == clusterID || h.ClusterID == "" && h.PreviousCluster == clusterID && h.State == lifecycle.UnbindingPendingUserAction
}

// LogsProgress implements Files.
func (s *Service) LogsProgress(ctx context.Context, key HostKey, state string) error {
	_, err := s.change(ctx, Machine, key, func(_ context.Context, w *work, h *Host) error {
		h.LogsState, h.LogsAt = state, w.now
		return nil
	})
	return err
}

// ListLogs implements Files.
func (s *Service) ListLogs(ctx context.Context, by Principal, clusterID string) ([]FileInfo, error) {
	files, err := s.files(ctx, by, clusterID)
	return slices.DeleteFunc(files, func(f FileInfo) bool { return !strings.HasPrefix(f.Name, logsFolder) }), err
}

// Logs implements Files.
func (s *Service) Logs(ctx context.Context, by Principal, clusterID, name string) ([]byte, error) {
	content, err := s.file(ctx, by, clusterID, name)
	if err == nil && (content == nil || !strings.HasPrefix(name, logsFolder)) {
		return nil, Refuse(NotFound, "LogsNotFound", "there are no logs of this yet")
	}
	return content, err
}

// AllowHosts implements Clusters.
func (s *Service) AllowHosts(ctx context.Context, by Principal, id string) (*Cluster, error) {
	return s.changeCluster(ctx, by, id, func(_ context.Context, w *work, c *Cluster, _ []*Host) error {
		switch c.Status {
		case lifecycle.ClusterInstalled:
			w.enterCluster(c, lifecycle.ClusterAddingHosts, "Cluster is installed and takes hosts")
		case lifecycle.ClusterAddingHosts:
		default:
			return Refuse(Conflict, "ClusterNotInstalled", "cluster %s is %s: only an installed cluster takes more hosts", id, c.Status)
		}
		return nil
	})
}

// ResetValidation implements Hosts.
func (s *Service) ResetValidation(ctx context.Context, by Principal, key HostKey, id string) (*Host, error) {
	h, err := s.change(ctx, by, key, func(ctx context.Context, w *work, h *Host) error {
		if err := w.settles(ctx, by, h); err != nil {
			return err
		}
		switch id {
		case validate.DiskSpeed:
			h.Checks.DiskSpeed = validate.Unknown
		case "container-images-available":
			h.Checks.Registry, h.Checks.RegistryDetail, h.Images, h.ImagesDetail = validate.Unknown, "", validate.Unknown, ""
		default:
			return Refuse(Invalid, "ValidationNotResettable", "validation %q follows from what is known and cannot be reset; sufficient-installation-disk-speed and container-images-available can", bound(id, 64))
		}
		return w.refresh(ctx, h)
	})
	if e := s.hosts.get(key); err == nil && e != nil {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.toldAt, e.replies = nil, nil // ask again
		e.changed()
	}
	return h, err
}

// HostMinimums implements Hosts.
func (s *Service) HostMinimums() validate.Minimums { return s.Minimums }
