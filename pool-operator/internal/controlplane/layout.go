// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// layout names the files of a data directory.
type layout string

func (d layout) path(elements ...string) string {
	return filepath.Join(append([]string{string(d)}, elements...)...)
}

func (d layout) lock() string              { return d.path("lock") }
func (d layout) owner() string             { return d.path("owner") }
func (d layout) record() string            { return d.path("plane.json") }
func (d layout) kubeconfig() string        { return d.path("kubeconfig") }
func (d layout) pki(name string) string    { return d.path("pki", name) }
func (d layout) run() string               { return d.path("run") }
func (d layout) pid(name string) string    { return d.path("run", name+".pid") }
func (d layout) log(name string) string    { return d.path("log", name+".log") }
func (d layout) etcdData() string          { return d.path("etcd") }
func (d layout) managerConfig() string     { return d.pki("controller-manager.kubeconfig") }
func (d layout) schedulerConfig() string   { return d.pki("scheduler.kubeconfig") }
func (d layout) nodeManagerConfig() string { return d.pki("node-manager.kubeconfig") }
func (d layout) tokens() string            { return d.pki("tokens.csv") }
func (d layout) encryption() string        { return d.pki("encryption.yaml") }
func (d layout) auditPolicy() string       { return d.pki("audit.yaml") }
func (d layout) auditLog() string          { return d.log("audit") }
func (d layout) socket() string            { return d.path("run", etcdSocket) }
func (d layout) processNames() []string {
	return []string{schedulerName, controllerManagerName, apiServerName, etcdName}
}
func (d layout) subdirectories() []string { return []string{"pki", "run", "log"} }

// create makes the directory and its sub-directories, private to the user.
func (d layout) create() error {
	for _, name := range append([]string{""}, d.subdirectories()...) {
		if err := os.MkdirAll(d.path(name), 0o700); err != nil {
			return asDiskFull(string(d), fmt.Errorf("creating the data directory: %w", err))
		}
	}
	return nil
}

// record is what a data directory remembers beside keys and etcd's data.
type record struct {
	// Port of the API server.
	Port int `json:"port"`
	// Served is true once the API server was ready: from then on clients may know the port.
	Served bool `json:"served"`
	// Begun is true from before etcd's data are laid down until the API server is ready on them for the first time.
	Begun bool `json:"begun,omitempty"`
}

func (d layout) readRecord() (record, error) {
	var r record
	content, err := os.ReadFile(d.record())
	if errors.Is(err, fs.ErrNotExist) {
		return r, nil
	}
	if err != nil {
		return r, &DamagedError{File: d.record(), Cause: err}
	}
	if err := json.Unmarshal(content, &r); err != nil {
		return r, &DamagedError{File: d.record(), Cause: err}
	}
	return r, nil
}

func (d layout) writeRecord(r record) error {
	content, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("recording the port: %w", err)
	}
	return d.write(d.record(), append(content, '\n'))
}

// write replaces a file of the directory by rename, so that readers never see half of it. It is synced, and its name is, since a key or a
// port that is lost by a power cut would make every kubeconfig useless, and a record that says again that the first start has not ended would have the data removed.
func (d layout) write(path string, content []byte) error {
	if err := replaceFile(path, content); err != nil {
		return asDiskFull(string(d), fmt.Errorf("writing %s: %w", path, err))
	}
	return nil
}

func replaceFile(path string, content []byte) error {
	file, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	if _, err = file.Write(content); err == nil {
		err = file.Sync()
	}
	if err = errors.Join(err, file.Close()); err == nil {
		err = os.Rename(file.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(file.Name()))
	}
	return SyncDir(filepath.Dir(path))
}

// SyncDir makes the names in a directory outlast a power cut.
func SyncDir(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}
