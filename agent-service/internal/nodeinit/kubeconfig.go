// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeinit

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"sigs.k8s.io/yaml"
)

// serverNameKey is of a cluster in a kubeconfig.
const serverNameKey = "tls-server-name"

// keepServerName puts the name that the API server's certificate is verified for into the kubeconfig that a kubelet made when it asked for its certificate: the kubelet takes the server and
// the authority over from its bootstrap kubeconfig, and leaves the name out. It changes nothing where there is no name, or no kubeconfig yet.
func keepServerName(path, name string) error {
	if name == "" {
		return nil
	}
	content, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	named, err := withServerName(content, name)
	if err != nil {
		return fmt.Errorf("reading %s: %w", path, err)
	}
	if named == nil {
		return nil
	}
	next, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*.next") // several programs begin at the same time
	if err != nil {
		return err
	}
	_, err = next.Write(named)
	if err = errors.Join(err, next.Sync(), next.Close()); err == nil {
		err = os.Rename(next.Name(), path)
	}
	if err != nil {
		err = errors.Join(err, os.Remove(next.Name()))
	}
	return err
}

// withServerName is a kubeconfig whose clusters have the name, nil where they have it already.
func withServerName(kubeconfig []byte, name string) ([]byte, error) {
	config := map[string]any{}
	if yaml.Unmarshal(kubeconfig, &config) != nil {
		return nil, errors.New("it is no kubeconfig") // the error may quote what is in it
	}
	clusters, _ := config["clusters"].([]any)
	changed := false
	for _, one := range clusters {
		entry, _ := one.(map[string]any)
		if cluster, is := entry["cluster"].(map[string]any); is && cluster[serverNameKey] != name {
			cluster[serverNameKey], changed = name, true
		}
	}
	if !changed {
		return nil, nil
	}
	return yaml.Marshal(config)
}
