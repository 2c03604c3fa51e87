// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package process

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/uuid"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-io/muster/pool-operator/internal/controlplane"
	"github.com/muster-io/muster/pool-operator/internal/provision"
)

const (
	newPrefix    = ".new-"
	gonePrefix   = ".gone-"
	recordFile   = "cluster.json"
	passwordFile = "password"
	startedFile  = "started"
)

// isHalfDone reports whether a directory is to be cleared away: one that was being removed always, one that was being laid
// down when no other operator can be doing that.
func isHalfDone(name string, alone bool) bool {
	return strings.HasPrefix(name, gonePrefix) || alone && strings.HasPrefix(name, newPrefix)
}

// record is the identity of a cluster, as kept in its directory.
type record struct {
	Namespace string    `json:"namespace"`
	Name      string    `json:"name"`
	UID       types.UID `json:"uid"`
	// ID identifies the data.
	ID string `json:"id"`
	// ClusterName stands in the kubeconfig.
	ClusterName string `json:"clusterName"`
	// Nodes is the network of a cluster that takes nodes.
	Nodes *nodeNetwork `json:"nodes,omitempty"`
}

// nodeNetwork is what a cluster with nodes never changes.
type nodeNetwork struct {
	PodCIDR     netip.Prefix `json:"podCIDR"`
	ServiceCIDR netip.Prefix `json:"serviceCIDR"`
}

func nodeNetworkOf(spec provision.Spec) *nodeNetwork {
	if spec.Nodes == nil {
		return nil
	}
	return &nodeNetwork{PodCIDR: spec.Nodes.PodCIDR, ServiceCIDR: spec.Nodes.ServiceCIDR}
}

func (r record) ref() provision.ClusterRef {
	return provision.ClusterRef{Namespace: r.Namespace, Name: r.Name, UID: r.UID}
}

// layDown makes the directory of a new cluster, with identity and password, all or nothing.
func (r *Runtime) layDown(ref provision.ClusterRef, spec provision.Spec) error {
	dir, err := os.MkdirTemp(r.options.Root, newPrefix+"*")
	if err != nil {
		return fmt.Errorf("making the directory of %s: %w", ref, err)
	}
	content, err := json.MarshalIndent(record{
		Namespace: ref.Namespace, Name: ref.Name, UID: ref.UID, ID: uuid.NewString(), ClusterName: spec.ClusterName,
		Nodes: nodeNetworkOf(spec),
	}, "", "  ")
	if err == nil {
		err = writeSynced(filepath.Join(dir, recordFile), content)
	}
	if err == nil {
		err = writeSynced(filepath.Join(dir, passwordFile), []byte(rand.Text()))
	}
	if err == nil {
		err = os.Rename(dir, r.dir(ref))
	}
	if err != nil {
		return errors.Join(fmt.Errorf("laying down %s: %w", ref, err), os.RemoveAll(dir))
	}
	return controlplane.SyncDir(r.options.Root)
}

func writeSynced(path string, content []byte) error {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = file.Write(content)
	return errors.Join(err, file.Sync(), file.Close())
}

// setStarted records whether the cluster was started and not stopped since.
func setStarted(dir string, started bool) error {
	path := filepath.Join(dir, startedFile)
	if !started {
		if err := os.Remove(path); !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	}
	if err := writeSynced(path, nil); !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil
}

func wasStarted(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, startedFile))
	return err == nil
}

func readRecord(dir string) (record, error) {
	var r record
	content, err := os.ReadFile(filepath.Join(dir, recordFile))
	if err != nil {
		return r, err
	}
	if err := json.Unmarshal(content, &r); err != nil || r.ID == "" {
		return r, &provision.Problem{
			Reason:  provision.ReasonDataDamaged,
			Message: filepath.Join(dir, recordFile) + " is damaged: it does not say which cluster the directory belongs to",
		}
	}
	return r, nil
}

func readPassword(dir string) (string, error) {
	content, err := os.ReadFile(filepath.Join(dir, passwordFile))
	return string(content), err
}

// records returns the identities of all clusters below the root. A directory without one is none of ours.
func (r *Runtime) records() ([]record, error) {
	entries, err := os.ReadDir(r.options.Root)
	if err != nil {
		return nil, fmt.Errorf("listing hosted clusters: %w", err)
	}
	var found []record
	for _, entry := range entries {
		if !entry.IsDir() || isHalfDone(entry.Name(), true) {
			continue
		}
		record, err := readRecord(filepath.Join(r.options.Root, entry.Name()))
		if err == nil {
			found = append(found, record)
		} else if !errors.Is(err, fs.ErrNotExist) {
			// One that cannot be read cannot be distinguished from another cluster's; it must not hide the rest.
			continue
		}
	}
	return found, nil
}
