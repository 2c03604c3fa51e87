// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package clusterdeployment

import (
	"bytes"
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	hivev1 "github.com/muster-io/muster/apis/hive/v1"
	"github.com/muster-io/muster/apis/outcome"
	"github.com/muster-io/muster/pool-operator/internal/membership"
	"github.com/muster-io/muster/pool-operator/internal/provision"
)

// pullSecretOutdated says whether an image of the cluster cannot be pulled, and the pool has other credentials than its copy beside the cluster. A copy by which images are pulled stays as it is.
func (r *Reconciler) pullSecretOutdated(ctx context.Context, cluster *hivev1.ClusterDeployment, observed provision.Observation) (bool, error) {
	if observed.Problem == nil || observed.Problem.Reason != provision.ReasonImageUnavailable {
		return false, nil
	}
	copied, content, err := r.pullSecrets(ctx, cluster)
	return copied != nil && content != nil && !bytes.Equal(copied.Data[hivev1.SecretKeyDockerConfigJSON], content), err
}

// copyPullSecret gives the copy beside the cluster what the pool has.
func (r *Reconciler) copyPullSecret(ctx context.Context, cluster *hivev1.ClusterDeployment) error {
	copied, content, err := r.pullSecrets(ctx, cluster)
	if err != nil || copied == nil || content == nil {
		return err
	}
	before := client.MergeFromWithOptions(copied.DeepCopy(), client.MergeFromWithOptimisticLock{})
	if copied.Data == nil {
		copied.Data = map[string][]byte{}
	}
	copied.Data[hivev1.SecretKeyDockerConfigJSON] = content
	if copied.ResourceVersion == "" {
		err = client.IgnoreAlreadyExists(r.Client.Create(ctx, copied, FieldOwner)) // the next observation reads one that another client made
	} else {
		err = r.Client.Patch(ctx, copied, before, FieldOwner)
	}
	if outcome.IsRefused(err) {
		return &provision.Problem{Reason: provision.ReasonRefused, Message: fmt.Sprintf("the Secret %s was refused: %v", copied.Name, err)}
	}
	if err != nil {
		return fmt.Errorf("copying the pull secret of the pool to %s/%s: %w", copied.Namespace, copied.Name, err)
	}
	return nil
}

// pullSecrets are the copy of the pool's pull secret beside a cluster that is a member of the pool, which has no resourceVersion where it was deleted, and what the pool has; nil where there is none.
func (r *Reconciler) pullSecrets(ctx context.Context, cluster *hivev1.ClusterDeployment) (*corev1.Secret, []byte, error) {
	ref := cluster.Spec.PullSecretRef
	if ref == nil || ref.Name != membership.PullSecretName(cluster.Namespace) || cluster.Spec.ClusterPoolRef == nil {
		return nil, nil, nil
	}
	namespace := &metav1.PartialObjectMetadata{}
	namespace.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
	if err := r.Live.Get(ctx, client.ObjectKey{Name: cluster.Namespace}, namespace); err != nil {
		return nil, nil, fmt.Errorf("reading metadata of namespace %s: %w", cluster.Namespace, err)
	}
	pool := &hivev1.ClusterPool{}
	err := r.Live.Get(ctx, client.ObjectKey{Namespace: cluster.Spec.ClusterPoolRef.Namespace, Name: cluster.Spec.ClusterPoolRef.PoolName}, pool)
	if apierrors.IsNotFound(err) || err == nil && (pool.Spec.PullSecretRef == nil || !membership.Proved(cluster, namespace.Labels)) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, fmt.Errorf("reading the ClusterPool of hosted cluster %s: %w", refOf(cluster), err)
	}
	secrets := map[client.ObjectKey]*corev1.Secret{}
	source, beside := client.ObjectKey{Namespace: pool.Namespace, Name: pool.Spec.PullSecretRef.Name}, client.ObjectKey{Namespace: cluster.Namespace, Name: ref.Name}
	for _, key := range []client.ObjectKey{source, beside} {
		secret := &corev1.Secret{}
		err := r.Live.Get(ctx, key, secret)
		if apierrors.IsNotFound(err) && key == source {
			return nil, nil, nil
		}
		if apierrors.IsNotFound(err) {
			secret.Namespace, secret.Name, secret.Type, err = key.Namespace, key.Name, corev1.SecretTypeDockerConfigJson, nil
		}
		if err != nil {
			return nil, nil, fmt.Errorf("reading Secret %s: %w", key, err)
		}
		secrets[key] = secret
	}
	return secrets[beside], secrets[source].Data[hivev1.SecretKeyDockerConfigJSON], nil
}
