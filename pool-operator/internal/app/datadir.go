// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// ownerFile in the data directory holds the identity of the API server whose ClusterDeployments the data belongs to.
const ownerFile = "belongs-to"

// claimDataDir makes sure that the data directory belongs to the API server that the operator talks to. Data without a ClusterDeployment is removed at start-up;
// against another API server, as with a wrong kubeconfig, that would be all of it.
func claimDataDir(ctx context.Context, live client.Reader, dir string) error {
	system := &metav1.PartialObjectMetadata{}
	system.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
	if err := live.Get(ctx, client.ObjectKey{Name: metav1.NamespaceSystem}, system); err != nil {
		return fmt.Errorf("asking the API server for its identity: %w", err)
	}
	path, identity := filepath.Join(dir, ownerFile), string(system.UID)
	present, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return fmt.Errorf("making %s: %w", dir, err)
		}
		if err := os.WriteFile(path, []byte(identity+"\n"), 0o600); err != nil {
			return fmt.Errorf("recording the owner of %s: %w", dir, err)
		}
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading the owner of %s: %w", dir, err)
	}
	if owner := strings.TrimSpace(string(present)); owner != "" && owner != identity {
		return fmt.Errorf("%s holds hosted clusters of another API server (its namespace kube-system has the UID %s, here it is %s): use another --hosted-data-dir, or remove %s",
			dir, owner, identity, path)
	}
	return nil
}
