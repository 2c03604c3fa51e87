// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package membership proves to which ClusterPool a ClusterDeployment belongs.
//
// Any user who may create a ClusterDeployment may name any pool in spec.clusterPoolRef. The operator makes a namespace for each cluster of a pool, with the pool's namespace
// and name as labels, and gives namespace and ClusterDeployment one name. Labels of namespaces are written by the operator and by administrators only, so they are the proof.
package membership

import (
	"context"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	hivev1 "github.com/muster-io/muster/apis/hive/v1"
)

// PullSecretName is the name of the copy of the pool's pull secret beside a cluster, in the namespace that was made for it.
func PullSecretName(namespace string) string { return namespace + "-pull-secret" }

// Proved returns true when a namespace with these labels proves that the ClusterDeployment in it belongs to the pool that its spec.clusterPoolRef names. Pools of one name in
// two namespaces share nothing.
func Proved(cd *hivev1.ClusterDeployment, namespaceLabels map[string]string) bool {
	ref := cd.Spec.ClusterPoolRef
	return ref != nil && ref.PoolName != "" && cd.Name == cd.Namespace &&
		namespaceLabels[hivev1.LabelNamespaceClusterPoolName] == ref.PoolName && namespaceLabels[hivev1.LabelNamespaceClusterPoolNamespace] == ref.Namespace
}

// Labels returns the labels of a namespace that prove that its cluster belongs to the pool.
func Labels(pool types.NamespacedName) map[string]string {
	return map[string]string{hivev1.LabelNamespaceClusterPoolName: pool.Name, hivev1.LabelNamespaceClusterPoolNamespace: pool.Namespace}
}

// Prover proves membership from the metadata of namespaces. All methods may be called from several goroutines.
type Prover struct {
	cache, live client.Reader

	mu sync.Mutex
	// foreign are ClusterDeployments whose namespace was read from the API server and proved nothing.
	foreign map[types.UID]bool
}

// maxForeign bounds the memory of a Prover. Forgotten entries are read again.
const maxForeign = 10000

// NewProver returns a Prover that reads metadata of namespaces from the cache and, when that does not have the proof, from the API server.
func NewProver(cache, live client.Reader) *Prover {
	return &Prover{cache: cache, live: live, foreign: map[types.UID]bool{}}
}

// Member says whether the ClusterDeployment belongs to the pool that it names. A cache that has not seen the namespace yet decides nothing: the API server is asked, once
// for each ClusterDeployment. A label that is added later counts as soon as the cache has it. first is true when the answer is no for the first time.
func (p *Prover) Member(ctx context.Context, cd *hivev1.ClusterDeployment) (member, first bool, err error) {
	if cd.Spec.ClusterPoolRef == nil || cd.Name != cd.Namespace {
		return false, p.remember(cd.UID), nil
	}
	if member, err := p.look(ctx, p.cache, cd); err != nil || member {
		return member, false, err
	}
	if p.known(cd.UID) {
		return false, false, nil
	}
	if member, err := p.look(ctx, p.live, cd); err != nil || member {
		return member, false, err
	}
	return false, p.remember(cd.UID), nil
}

func (p *Prover) look(ctx context.Context, reader client.Reader, cd *hivev1.ClusterDeployment) (bool, error) {
	ns := &metav1.PartialObjectMetadata{}
	ns.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
	err := reader.Get(ctx, client.ObjectKey{Name: cd.Namespace}, ns, client.UnsafeDisableDeepCopy)
	switch {
	case apierrors.IsNotFound(err):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("reading metadata of namespace %s: %w", cd.Namespace, err)
	}
	return Proved(cd, ns.Labels), nil
}

func (p *Prover) known(uid types.UID) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.foreign[uid]
}

// remember returns false when it was known.
func (p *Prover) remember(uid types.UID) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.foreign[uid] {
		return false
	}
	if len(p.foreign) >= maxForeign {
		clear(p.foreign)
	}
	p.foreign[uid] = true
	return true
}
