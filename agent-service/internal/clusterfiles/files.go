// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package clusterfiles keeps files with clusters: manifests, overrides of the install configuration, settings of user interfaces, logs.
package clusterfiles

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/muster-io/muster/agent-service/internal/domain"
	"github.com/muster-io/muster/agent-service/internal/lifecycle"
	"github.com/muster-io/muster/agent-service/internal/transaction"
)

// Bounds of what is kept with a cluster.
const (
	// maxManifests is how many manifests there may be, and maxText how large other files may be.
	maxManifests = 128
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

// Files are those of all clusters. Its methods are safe for concurrent use; NotFound for clusters of others.
type Files struct{ engine *transaction.Engine }

// New returns the files that transactions of the engine read and write.
func New(engine *transaction.Engine) Files { return Files{engine} }

// ListManifests are the files of manifests/ and openshift/. The host that brings up the control plane gets them with its first-boot data.
func (s Files) ListManifests(ctx context.Context, by domain.Principal, clusterID string) ([]domain.FileInfo, error) {
	files, err := s.files(ctx, by, clusterID)
	return slices.DeleteFunc(files, func(f domain.FileInfo) bool { return !domain.IsManifest(f.Name) }), err
}

func (s Files) files(ctx context.Context, by domain.Principal, clusterID string) (files []domain.FileInfo, err error) {
	err = s.engine.View(ctx, func(ctx context.Context, r transaction.Reader) error {
		if _, err := transaction.OwnCluster(ctx, r, by, clusterID); err != nil {
			return err
		}
		files, err = r.Files(ctx, clusterID)
		return err
	})
	return files, err
}

// file is the content of one, nil without one.
func (s Files) file(ctx context.Context, by domain.Principal, clusterID, name string) (content []byte, err error) {
	err = s.engine.View(ctx, func(ctx context.Context, r transaction.Reader) error {
		if _, err := transaction.OwnCluster(ctx, r, by, clusterID); err != nil {
			return err
		}
		content, err = r.File(ctx, clusterID, name)
		return err
	})
	return content, err
}

// Manifest returns the content of a manifest.
func (s Files) Manifest(ctx context.Context, by domain.Principal, clusterID, name string) ([]byte, error) {
	content, err := s.file(ctx, by, clusterID, name)
	if err == nil && (content == nil || !domain.IsManifest(name)) {
		return nil, domain.RefuseUnknown("Manifest", domain.Truncate(name, 256))
	}
	return content, err
}

// CreateManifest writes over one that is there.
func (s Files) CreateManifest(ctx context.Context, by domain.Principal, clusterID, name string, content []byte) error {
	return s.changeManifests(ctx, by, clusterID, func(ctx context.Context, w *transaction.Work, there []domain.FileInfo) error {
		manifests, size := 1, int64(len(content))
		for _, f := range there {
			if domain.IsManifest(f.Name) && f.Name != name {
				manifests++
				size += f.Size
			}
		}
		if manifests > maxManifests || size > maxManifestsSize {
			return domain.Refuse(domain.Conflict, "TooManyManifests", "a cluster has at most %d manifests of %d bytes together", maxManifests, maxManifestsSize)
		}
		return w.PutManifest(ctx, clusterID, name, content)
	})
}

// UpdateManifest renames a manifest, and gives it a content unless that is nil.
func (s Files) UpdateManifest(ctx context.Context, by domain.Principal, clusterID, name, newName string, content []byte) error {
	return s.changeManifests(ctx, by, clusterID, func(ctx context.Context, w *transaction.Work, there []domain.FileInfo) error {
		has := func(name string) bool {
			return slices.ContainsFunc(there, func(f domain.FileInfo) bool { return f.Name == name })
		}
		if !domain.IsManifest(name) || !has(name) {
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
		return w.PutManifest(ctx, clusterID, newName, content)
	})
}

// DeleteManifest deletes a manifest. NotFound for an unknown one.
func (s Files) DeleteManifest(ctx context.Context, by domain.Principal, clusterID, name string) error {
	return s.changeManifests(ctx, by, clusterID, func(ctx context.Context, w *transaction.Work, there []domain.FileInfo) error {
		if !domain.IsManifest(name) || !slices.ContainsFunc(there, func(f domain.FileInfo) bool { return f.Name == name }) {
			return domain.RefuseUnknown("Manifest", domain.Truncate(name, 256))
		}
		return w.DeleteFile(ctx, clusterID, name)
	})
}

func (s Files) changeManifests(ctx context.Context, by domain.Principal, clusterID string, do func(ctx context.Context, w *transaction.Work, there []domain.FileInfo) error) error {
	return s.changeFiles(ctx, by, clusterID, func(ctx context.Context, w *transaction.Work) error {
		there, err := w.Files(ctx, clusterID)
		if err != nil {
			return err
		}
		return do(ctx, w, there)
	})
}

// changeFiles runs a transaction about what an installation is made from.
func (s Files) changeFiles(ctx context.Context, by domain.Principal, clusterID string, do func(ctx context.Context, w *transaction.Work) error) error {
	return s.engine.Update(ctx, func(ctx context.Context, w *transaction.Work) error {
		c, err := w.OwnCluster(ctx, by, clusterID)
		if err != nil {
			return err
		}
		if lifecycle.ClusterBusy(c.Status) {
			return domain.Refuse(domain.Conflict, "ClusterInstalling", "cluster %s is being installed: cancel the installation first", clusterID)
		}
		return do(ctx, w)
	}, clusterID)
}

// InstallConfig is the cluster as installers describe it, in YAML, with the overrides and without the pull secret.
func (s Files) InstallConfig(ctx context.Context, by domain.Principal, clusterID string) ([]byte, error) {
	var c *domain.Cluster
	var overrides []byte
	err := s.engine.View(ctx, func(ctx context.Context, r transaction.Reader) (err error) {
		if c, err = transaction.OwnCluster(ctx, r, by, clusterID); err != nil {
			return err
		}
		overrides, err = r.File(ctx, clusterID, overridesFile)
		return err
	})
	if err != nil {
		return nil, err
	}
	config, err := c.InstallConfig(overrides)
	if err != nil {
		return nil, err
	}
	return yaml.Marshal(config)
}

// OverrideInstallConfig keeps a JSON object that is laid over it; an empty one is none.
func (s Files) OverrideInstallConfig(ctx context.Context, by domain.Principal, clusterID, overrides string) error {
	var patch map[string]any
	if len(overrides) > maxText || json.Unmarshal([]byte(cmp.Or(overrides, "{}")), &patch) != nil || patch == nil {
		return domain.Refuse(domain.Invalid, "InstallConfigInvalid", "the overrides are no JSON object of at most %d bytes", maxText)
	}
	if _, secret := patch["pullSecret"]; secret {
		return domain.Refuse(domain.Invalid, "InstallConfigInvalid", "the pull secret is a field of the cluster of its own: set pull_secret there")
	}
	return s.changeFiles(ctx, by, clusterID, func(ctx context.Context, w *transaction.Work) error {
		if len(patch) == 0 {
			return w.DeleteFile(ctx, clusterID, overridesFile)
		}
		return w.PutFile(ctx, clusterID, overridesFile, []byte(overrides), w.Now)
	})
}

// SettingsOfUI is a text that user interfaces keep with a cluster.
func (s Files) SettingsOfUI(ctx context.Context, by domain.Principal, clusterID string) (string, error) {
	content, err := s.file(ctx, by, clusterID, settingsOfUI)
	return string(content), err
}

// SetSettingsOfUI keeps a text of a user interface with a cluster.
func (s Files) SetSettingsOfUI(ctx context.Context, by domain.Principal, clusterID, settings string) error {
	if len(settings) > maxText {
		return domain.Refuse(domain.Invalid, "SettingsTooLarge", "the settings have at most %d bytes", maxText)
	}
	return s.engine.Update(ctx, func(ctx context.Context, w *transaction.Work) error {
		if _, err := w.OwnCluster(ctx, by, clusterID); err != nil {
			return err
		}
		return w.PutFile(ctx, clusterID, settingsOfUI, []byte(settings), w.Now)
	}, clusterID)
}

// KeepLogs keeps an archive of a host that is bound to the cluster, of itself or of the cluster's controller; NotFound from others.
func (s Files) KeepLogs(ctx context.Context, clusterID string, from domain.HostKey, controller bool, archive []byte) error {
	return s.engine.Update(ctx, func(ctx context.Context, w *transaction.Work) error {
		h, err := w.TrackHost(ctx, from)
		if err != nil {
			return err
		}
		c, err := w.TrackCluster(ctx, clusterID)
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

// ListLogs are logs/<host id> and logs/controller.
func (s Files) ListLogs(ctx context.Context, by domain.Principal, clusterID string) ([]domain.FileInfo, error) {
	files, err := s.files(ctx, by, clusterID)
	return slices.DeleteFunc(files, func(f domain.FileInfo) bool { return !strings.HasPrefix(f.Name, logsFolder) }), err
}

// Logs returns an archive of logs by the name that ListLogs has.
func (s Files) Logs(ctx context.Context, by domain.Principal, clusterID, name string) ([]byte, error) {
	content, err := s.file(ctx, by, clusterID, name)
	if err == nil && (content == nil || !strings.HasPrefix(name, logsFolder)) {
		return nil, domain.Refuse(domain.NotFound, "LogsNotFound", "there are no logs of this yet")
	}
	return content, err
}
