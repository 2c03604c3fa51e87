// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package service

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/muster-io/muster/agent-service/internal/domain"
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

// ManifestFolders are where manifests of a cluster can be.
var ManifestFolders = []string{"manifests", "openshift"}

func isManifest(name string) bool {
	folder, file, there := strings.Cut(name, "/")
	return there && file != "" && !strings.Contains(file, "/") && slices.Contains(ManifestFolders, folder)
}

// ListManifests implements Files.
func (s *Service) ListManifests(ctx context.Context, by domain.Principal, clusterID string) ([]domain.FileInfo, error) {
	files, err := s.files(ctx, by, clusterID)
	return slices.DeleteFunc(files, func(f domain.FileInfo) bool { return !isManifest(f.Name) }), err
}

func (s *Service) files(ctx context.Context, by domain.Principal, clusterID string) (files []domain.FileInfo, err error) {
	err = s.view(ctx, func(ctx context.Context, r Reader) error {
		if c, err := r.Cluster(ctx, clusterID); err != nil {
			return err
		} else if c == nil || !by.Owns(c.Owner) {
			return domain.RefuseUnknown("Cluster", clusterID)
		}
		files, err = r.Files(ctx, clusterID)
		return err
	})
	return files, err
}

// file is the content of one, nil without one.
func (s *Service) file(ctx context.Context, by domain.Principal, clusterID, name string) (content []byte, err error) {
	err = s.view(ctx, func(ctx context.Context, r Reader) error {
		if c, err := r.Cluster(ctx, clusterID); err != nil {
			return err
		} else if c == nil || !by.Owns(c.Owner) {
			return domain.RefuseUnknown("Cluster", clusterID)
		}
		content, err = r.File(ctx, clusterID, name)
		return err
	})
	return content, err
}

// Manifest implements Files.
func (s *Service) Manifest(ctx context.Context, by domain.Principal, clusterID, name string) ([]byte, error) {
	content, err := s.file(ctx, by, clusterID, name)
	if err == nil && (content == nil || !isManifest(name)) {
		return nil, domain.RefuseUnknown("Manifest", domain.Truncate(name, 256))
	}
	return content, err
}

// CreateManifest implements Files.
func (s *Service) CreateManifest(ctx context.Context, by domain.Principal, clusterID, name string, content []byte) error {
	return s.changeManifests(ctx, by, clusterID, func(ctx context.Context, w *work, there []domain.FileInfo) error {
		manifests, size := 1, int64(len(content))
		for _, f := range there {
			if isManifest(f.Name) && f.Name != name {
				manifests++
				size += f.Size
			}
		}
		if manifests > MaxManifests || size > maxManifestsSize {
			return domain.Refuse(domain.Conflict, "TooManyManifests", "a cluster has at most %d manifests of %d bytes together", MaxManifests, maxManifestsSize)
		}
		return w.putManifest(ctx, clusterID, name, content)
	})
}

// UpdateManifest implements Files.
func (s *Service) UpdateManifest(ctx context.Context, by domain.Principal, clusterID, name, newName string, content []byte) error {
	return s.changeManifests(ctx, by, clusterID, func(ctx context.Context, w *work, there []domain.FileInfo) error {
		has := func(name string) bool {
			return slices.ContainsFunc(there, func(f domain.FileInfo) bool { return f.Name == name })
		}
		if !isManifest(name) || !has(name) {
			return domain.RefuseUnknown("Manifest", domain.Truncate(name, 256))
		}
		if newName != name && has(newName) {
			return domain.Refuse(domain.Conflict, "AlreadyExists", "there is a manifest %s already", newName)
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
func (s *Service) DeleteManifest(ctx context.Context, by domain.Principal, clusterID, name string) error {
	return s.changeManifests(ctx, by, clusterID, func(ctx context.Context, w *work, there []domain.FileInfo) error {
		if !isManifest(name) || !slices.ContainsFunc(there, func(f domain.FileInfo) bool { return f.Name == name }) {
			return domain.RefuseUnknown("Manifest", domain.Truncate(name, 256))
		}
		return w.DeleteFile(ctx, clusterID, name)
	})
}

func (w *work) putManifest(ctx context.Context, clusterID, name string, content []byte) error {
	if !isManifest(name) || len(name) > 512 {
		return domain.Refuse(domain.Invalid, "ManifestNameInvalid", "%q: a manifest is a file in manifests or openshift", domain.Truncate(name, 64))
	}
	if len(content) == 0 || len(content) > MaxManifest {
		return domain.Refuse(domain.Invalid, "ManifestInvalid", "a manifest has 1 to %d bytes", MaxManifest)
	}
	var parsed any
	for document := range strings.SplitSeq(string(content), "\n---") {
		if err := yaml.Unmarshal([]byte(document), &parsed); err != nil {
			return domain.Refuse(domain.Invalid, "ManifestInvalid", "manifest %s is neither YAML nor JSON", name)
		}
	}
	return w.PutFile(ctx, clusterID, name, content, w.Now)
}

func (s *Service) changeManifests(ctx context.Context, by domain.Principal, clusterID string, do func(ctx context.Context, w *work, there []domain.FileInfo) error) error {
	return s.changeFiles(ctx, by, clusterID, func(ctx context.Context, w *work) error {
		there, err := w.Files(ctx, clusterID)
		if err != nil {
			return err
		}
		return do(ctx, w, there)
	})
}

// changeFiles runs a transaction about what an installation is made from.
func (s *Service) changeFiles(ctx context.Context, by domain.Principal, clusterID string, do func(ctx context.Context, w *work) error) error {
	return s.update(ctx, func(ctx context.Context, w *work) error {
		c, err := w.ownCluster(ctx, by, clusterID)
		if err != nil {
			return err
		}
		if lifecycle.ClusterBusy(c.Status) {
			return domain.Refuse(domain.Conflict, "ClusterInstalling", "cluster %s is being installed: cancel the installation first", clusterID)
		}
		return do(ctx, w)
	}, clusterID)
}

// InstallConfig implements Files.
func (s *Service) InstallConfig(ctx context.Context, by domain.Principal, clusterID string) ([]byte, error) {
	c, err := s.GetCluster(ctx, by, clusterID)
	if err != nil {
		return nil, err
	}
	config := c.InstallConfig()
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
func (s *Service) OverrideInstallConfig(ctx context.Context, by domain.Principal, clusterID, overrides string) error {
	var patch map[string]any
	if len(overrides) > maxText || json.Unmarshal([]byte(cmp.Or(overrides, "{}")), &patch) != nil || patch == nil {
		return domain.Refuse(domain.Invalid, "InstallConfigInvalid", "the overrides are no JSON object of at most %d bytes", maxText)
	}
	if _, secret := patch["pullSecret"]; secret {
		return domain.Refuse(domain.Invalid, "InstallConfigInvalid", "the pull secret is a field of the cluster of its own: set pull_secret there")
	}
	return s.changeFiles(ctx, by, clusterID, func(ctx context.Context, w *work) error {
		if len(patch) == 0 {
			return w.DeleteFile(ctx, clusterID, overridesFile)
		}
		return w.PutFile(ctx, clusterID, overridesFile, []byte(overrides), w.Now)
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

// SettingsOfUI implements Files.
func (s *Service) SettingsOfUI(ctx context.Context, by domain.Principal, clusterID string) (string, error) {
	content, err := s.file(ctx, by, clusterID, settingsOfUI)
	return string(content), err
}

// SetSettingsOfUI implements Files.
func (s *Service) SetSettingsOfUI(ctx context.Context, by domain.Principal, clusterID, settings string) error {
	if len(settings) > maxText {
		return domain.Refuse(domain.Invalid, "SettingsTooLarge", "the settings have at most %d bytes", maxText)
	}
	return s.update(ctx, func(ctx context.Context, w *work) error {
		if _, err := w.ownCluster(ctx, by, clusterID); err != nil {
			return err
		}
		return w.PutFile(ctx, clusterID, settingsOfUI, []byte(settings), w.Now)
	}, clusterID)
}

// KeepLogs implements Files.
func (s *Service) KeepLogs(ctx context.Context, clusterID string, from domain.HostKey, controller bool, archive []byte) error {
	return s.update(ctx, func(ctx context.Context, w *work) error {
		h, err := w.host(ctx, from)
		if err != nil {
			return err
		}
		c, err := w.cluster(ctx, clusterID)
		if err != nil {
			return err
		}
		if h == nil || c == nil || !h.OwesLogs(clusterID) {
			return domain.RefuseUnknown("Cluster", clusterID)
		}
		name := logsFolder + h.HostID
		if controller {
			name = logsController
		} else {
			h.LogsState, h.LogsAt = "completed", w.Now
		}
		return w.PutFile(ctx, clusterID, name, archive, w.Now)
	}, clusterID)
}

// LogsProgress implements Files.
func (s *Service) LogsProgress(ctx context.Context, key domain.HostKey, state string) error {
	_, err := s.change(ctx, domain.Machine, key, func(_ context.Context, w *work, h *domain.Host) error {
		h.LogsState, h.LogsAt = state, w.Now
		return nil
	})
	return err
}

// ListLogs implements Files.
func (s *Service) ListLogs(ctx context.Context, by domain.Principal, clusterID string) ([]domain.FileInfo, error) {
	files, err := s.files(ctx, by, clusterID)
	return slices.DeleteFunc(files, func(f domain.FileInfo) bool { return !strings.HasPrefix(f.Name, logsFolder) }), err
}

// Logs implements Files.
func (s *Service) Logs(ctx context.Context, by domain.Principal, clusterID, name string) ([]byte, error) {
	content, err := s.file(ctx, by, clusterID, name)
	if err == nil && (content == nil || !strings.HasPrefix(name, logsFolder)) {
		return nil, domain.Refuse(domain.NotFound, "LogsNotFound", "there are no logs of this yet")
	}
	return content, err
}

// AllowHosts implements Clusters.
func (s *Service) AllowHosts(ctx context.Context, by domain.Principal, id string) (*domain.Cluster, error) {
	return s.changeCluster(ctx, by, id, func(_ context.Context, w *work, c *domain.Cluster, _ []*domain.Host) error {
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

// ResetValidation implements Hosts.
func (s *Service) ResetValidation(ctx context.Context, by domain.Principal, key domain.HostKey, id string) (*domain.Host, error) {
	h, err := s.change(ctx, by, key, func(ctx context.Context, w *work, h *domain.Host) error {
		if err := w.settles(ctx, by, h); err != nil {
			return err
		}
		switch id {
		case validate.DiskSpeed:
			h.Checks.DiskSpeed = validate.Unknown
		case validate.ContainerImages:
			h.Checks.Registry, h.Checks.RegistryDetail, h.Images, h.ImagesDetail = validate.Unknown, "", validate.Unknown, ""
		default:
			return domain.Refuse(domain.Invalid, "ValidationNotResettable", "validation %q follows from what is known and cannot be reset; sufficient-installation-disk-speed and container-images-available can", domain.Truncate(id, 64))
		}
		return w.refresh(ctx, h)
	})
	if e := s.hosts.Get(key); err == nil && e != nil {
		e.AskAgain()
	}
	return h, err
}

// HostMinimums implements Hosts.
func (s *Service) HostMinimums() validate.Minimums { return s.Minimums }
