// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package clusterdeployment

import (
	"context"
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	metav1ac "k8s.io/client-go/applyconfigurations/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	hivev1 "github.com/muster-io/muster/apis/hive/v1"
	"github.com/muster-io/muster/apis/outcome"
	"github.com/muster-io/muster/pool-operator/internal/provision"
)

// adminUsername is the user that the administrator's password belongs to.
const adminUsername = "admin"

// installerMetadata is the content of metadata.json: what an installer says about the cluster.
type installerMetadata struct {
	ClusterName string   `json:"clusterName"`
	ClusterID   string   `json:"clusterID"`
	InfraID     string   `json:"infraID"`
	Hosted      struct{} `json:"hosted"`
}

// publishAccess writes the credentials that the runtime keeps, so it writes the same each time: nothing is made here.
func (r *Reconciler) publishAccess(ctx context.Context, cluster *hivev1.ClusterDeployment, metadata hivev1.ClusterMetadata) error {
	access, err := r.Runtime.Access(ctx, refOf(cluster))
	if err != nil {
		return fmt.Errorf("reading the credentials of hosted cluster %s: %w", refOf(cluster), err)
	}
	document, err := json.Marshal(installerMetadata{ClusterName: cluster.Spec.ClusterName, ClusterID: metadata.ClusterID, InfraID: metadata.InfraID})
	if err != nil {
		return fmt.Errorf("encoding the metadata of hosted cluster %s: %w", refOf(cluster), err)
	}
	content := map[string]map[string][]byte{
		metadata.AdminKubeconfigSecretRef.Name: {hivev1.SecretKeyKubeconfig: access.Kubeconfig},
	}
	if ref := metadata.AdminPasswordSecretRef; ref != nil {
		content[ref.Name] = map[string][]byte{hivev1.SecretKeyUsername: []byte(adminUsername), hivev1.SecretKeyPassword: []byte(access.Password)}
	}
	if ref := metadata.MetadataJSONSecretRef; ref != nil {
		content[ref.Name] = map[string][]byte{hivev1.SecretKeyMetadataJSON: document}
	}
	for _, name := range secretNames(&metadata) {
		if err := r.applySecret(ctx, cluster, name, corev1.SecretTypeOpaque, access.ID(), content[name]); err != nil {
			return err
		}
	}
	return nil
}

func (r *Reconciler) applySecret(ctx context.Context, cluster *hivev1.ClusterDeployment, name string, kind corev1.SecretType, id string, data map[string][]byte) error {
	owner := metav1ac.OwnerReference().
		WithAPIVersion(hivev1.GroupVersion.String()).WithKind("ClusterDeployment").
		WithName(cluster.Name).WithUID(cluster.UID).WithController(true)
	secret := corev1ac.Secret(name, cluster.Namespace).WithOwnerReferences(owner).
		WithAnnotations(map[string]string{AccessAnnotation: id}).WithType(kind).WithData(data)
	err := r.Client.Apply(ctx, secret, FieldOwner, client.ForceOwnership)
	if outcome.IsRefused(err) {
		return &provision.Problem{Reason: provision.ReasonRefused, Message: fmt.Sprintf("the Secret %s was refused: %v", name, err)}
	}
	if err != nil {
		return fmt.Errorf("writing Secret %s/%s: %w", cluster.Namespace, name, err)
	}
	return nil
}
