// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package clusterdeployment

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	corev1 "k8s.io/api/core/v1"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	hivev1 "github.com/muster-io/muster/apis/hive/v1"
	"github.com/muster-io/muster/pool-operator/internal/hostedplan"
	"github.com/muster-io/muster/pool-operator/internal/nodeaccess"
	"github.com/muster-io/muster/pool-operator/internal/provision"
)

// nodesOf is the network of a cluster that takes nodes; nil for one that takes none. Admission has checked the addresses.
func nodesOf(cluster *hivev1.ClusterDeployment) *provision.NodeNetwork {
	hosted := cluster.Spec.Platform.Hosted
	if hosted == nil || hosted.Nodes == nil {
		return nil
	}
	network := &provision.NodeNetwork{
		PodCIDR:     parsePrefix(hosted.Nodes.PodCIDR, hivev1.DefaultPodCIDR),
		ServiceCIDR: parsePrefix(hosted.Nodes.ServiceCIDR, hivev1.DefaultServiceCIDR),
	}
	var err error
	if network.ClusterDNS, err = netip.ParseAddr(hosted.Nodes.ClusterDNS); err != nil {
		network.ClusterDNS = tenth(network.ServiceCIDR)
	}
	return network
}

func parsePrefix(text, otherwise string) netip.Prefix {
	prefix, err := netip.ParsePrefix(text)
	if err != nil {
		prefix = netip.MustParsePrefix(otherwise)
	}
	return prefix.Masked()
}

// tenth is the tenth address of a network, where resolvers of clusters are found by convention.
func tenth(prefix netip.Prefix) netip.Addr {
	address := prefix.Addr()
	for range 10 {
		address = address.Next()
	}
	return address
}

// settings are what the objects inside a cluster with nodes depend on.
func (r *Reconciler) settings(network *provision.NodeNetwork) nodeaccess.Settings {
	return nodeaccess.Settings{Network: *network, DNSImage: r.DNSImage}
}

// nodeAccessMissing looks whether a running cluster lacks what nodes join with, as it should be now.
func (r *Reconciler) nodeAccessMissing(ctx context.Context, cluster *hivev1.ClusterDeployment, observed provision.Observation) (bool, error) {
	network, metadata := nodesOf(cluster), cluster.Spec.ClusterMetadata
	if network == nil || metadata == nil || metadata.NodeAccessSecretRef == nil || observed.State != provision.StateReady {
		return false, nil
	}
	id, err := nodeaccess.ID(observed.AccessID, observed.Version, r.settings(network))
	if err != nil {
		return false, err
	}
	missing, err := r.secretMissing(ctx, cluster, metadata.NodeAccessSecretRef.Name, id)
	if missing || err != nil {
		return missing, err
	}
	return r.objectsLost(ctx, cluster, *network)
}

// lookTimeout bounds the look at what nodes join with inside a hosted cluster.
const lookTimeout = 3 * time.Second

// objectsLost looks whether an administrator of a running cluster deleted something inside it that nodes join with. Of one that does not answer to that nothing can be said.
func (r *Reconciler) objectsLost(ctx context.Context, cluster *hivev1.ClusterDeployment, network provision.NodeNetwork) (bool, error) {
	access, err := r.Runtime.Access(ctx, refOf(cluster))
	if err != nil {
		return false, fmt.Errorf("reading the credentials of hosted cluster %s: %w", refOf(cluster), err)
	}
	look, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	lost, err := nodeaccess.Lost(look, access.Kubeconfig, r.settings(&network))
	if err != nil {
		logf.FromContext(ctx).V(1).Info("could not look at what nodes join with", "cause", err.Error())
	}
	return lost, nil
}

// applyTimeout bounds what is applied inside a hosted cluster, whose administrators can slow it down by admission webhooks.
const applyTimeout = 15 * time.Second

// publishNodeAccess prepares the cluster first, so that its Secret is there only once nodes can join. A cluster that refuses is a
// problem of that cluster, and tried again.
func (r *Reconciler) publishNodeAccess(ctx context.Context, cluster *hivev1.ClusterDeployment, a hostedplan.PublishNodeAccess) error {
	network := nodesOf(cluster)
	access, err := r.Runtime.Access(ctx, refOf(cluster))
	if err != nil {
		return fmt.Errorf("reading the credentials of hosted cluster %s: %w", refOf(cluster), err)
	}
	settings := r.settings(network)
	if err := prepareNodes(ctx, access.Kubeconfig, settings); err != nil {
		return err
	}
	content, err := nodeaccess.Secret(access, a.Version, settings)
	if err != nil {
		return fmt.Errorf("making node access of hosted cluster %s: %w", refOf(cluster), err)
	}
	id, err := nodeaccess.ID(access.ID(), a.Version, settings)
	if err != nil {
		return err
	}
	return r.applySecret(ctx, cluster, a.Metadata.NodeAccessSecretRef.Name, corev1.SecretType(hivev1.SecretTypeNodeAccess), id, content)
}

func prepareNodes(ctx context.Context, kubeconfig []byte, settings nodeaccess.Settings) error {
	ctx, cancel := context.WithTimeout(ctx, applyTimeout)
	defer cancel()
	if err := nodeaccess.Apply(ctx, kubeconfig, settings); err != nil {
		return &provision.Problem{Reason: provision.ReasonOther, Message: "the cluster cannot be prepared for nodes: " + err.Error()}
	}
	return nil
}
