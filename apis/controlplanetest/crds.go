// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplanetest

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"sync"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"
)

// servedInterval is how often discovery is asked for a new kind.
const servedInterval = 20 * time.Millisecond

// installer remembers which files hold nothing that is not installed already.
type installer struct {
	mu   sync.Mutex
	done map[[sha256.Size]byte]bool
}

// install creates the CustomResourceDefinitions of a directory and returns when the API server serves them.
func (i *installer) install(ctx context.Context, config *rest.Config, dir fs.FS) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	wanted, err := i.read(dir)
	if err != nil || len(wanted) == 0 {
		return err
	}
	client, err := clientset.NewForConfig(config)
	if err != nil {
		return err
	}
	var failures []error
	for _, definition := range wanted {
		_, err := client.ApiextensionsV1().CustomResourceDefinitions().Create(ctx, definition, metav1.CreateOptions{})
		if err != nil && !apierrors.IsAlreadyExists(err) {
			failures = append(failures, err)
		}
	}
	if err := errors.Join(failures...); err != nil {
		return err
	}
	for sum, definition := range wanted {
		if err := waitServed(ctx, client.Discovery(), definition); err != nil {
			return err
		}
		i.done[sum] = true
	}
	return nil
}

// read returns the definitions of a directory that are not installed yet, by the sums of their files.
func (i *installer) read(dir fs.FS) (map[[sha256.Size]byte]*apiextensionsv1.CustomResourceDefinition, error) {
	files, err := fs.Glob(dir, "*.yaml")
	if err != nil {
		return nil, err
	}
	wanted := map[[sha256.Size]byte]*apiextensionsv1.CustomResourceDefinition{}
	for _, file := range files {
		content, err := fs.ReadFile(dir, file)
		if err != nil {
			return nil, err
		}
		sum := sha256.Sum256(content)
		if i.done[sum] {
			continue
		}
		definition := &apiextensionsv1.CustomResourceDefinition{}
		if err := yaml.Unmarshal(content, definition); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		if definition.Kind == "CustomResourceDefinition" {
			wanted[sum] = definition
		}
	}
	return wanted, nil
}

// waitServed returns when every served version of a definition is in discovery, which is after it is Established.
func waitServed(ctx context.Context, client discovery.DiscoveryInterface, definition *apiextensionsv1.CustomResourceDefinition) error {
	for _, version := range definition.Spec.Versions {
		if !version.Served {
			continue
		}
		groupVersion := definition.Spec.Group + "/" + version.Name
		for !serves(client, groupVersion, definition.Spec.Names.Plural) {
			select {
			case <-ctx.Done():
				return fmt.Errorf("waiting until %s of %s is served: %w", definition.Spec.Names.Plural, groupVersion, ctx.Err())
			case <-time.After(servedInterval):
			}
		}
	}
	return nil
}

func serves(client discovery.DiscoveryInterface, groupVersion, plural string) bool {
	resources, err := client.ServerResourcesForGroupVersion(groupVersion)
	if err != nil {
		return false
	}
	for _, resource := range resources.APIResources {
		if resource.Name == plural {
			return true
		}
	}
	return false
}
