// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package routeplan says which routes a node has to the pods of others: by the addresses of their nodes, which share a link with it.
package routeplan

import (
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// Route leads to the pods of a node.
type Route struct {
	To  netip.Prefix
	Via netip.Addr
}

// Plan returns the routes of the node self to the pods of others. Kubelets write their Nodes themselves, so a range counts only
// within those of the cluster's pods, and not where it overlaps that of self or of an older Node.
func Plan(nodes []*corev1.Node, self string, cluster []netip.Prefix) []Route {
	nodes = slices.Clone(nodes)
	slices.SortFunc(nodes, func(a, b *corev1.Node) int {
		switch {
		case a.Name == self:
			return -1
		case b.Name == self:
			return 1
		}
		if order := a.CreationTimestamp.Compare(b.CreationTimestamp.Time); order != 0 {
			return order
		}
		return strings.Compare(a.Name, b.Name)
	})
	var taken []netip.Prefix
	var routes []Route
	for _, node := range nodes {
		for _, pods := range ranges(node) {
			if !within(pods, cluster) || slices.ContainsFunc(taken, pods.Overlaps) {
				continue
			}
			taken = append(taken, pods)
			if via := internal(node, pods.Addr().Is4()); node.Name != self && via.IsValid() {
				routes = append(routes, Route{To: pods, Via: via})
			}
		}
	}
	return routes
}

// ranges are those of a node's pods.
func ranges(node *corev1.Node) []netip.Prefix {
	var list []netip.Prefix
	for _, text := range node.Spec.PodCIDRs {
		if prefix, err := netip.ParsePrefix(text); err == nil {
			list = append(list, prefix.Masked())
		}
	}
	return list
}

// within is true for a range that is a part of one of the cluster's.
func within(pods netip.Prefix, cluster []netip.Prefix) bool {
	return slices.ContainsFunc(cluster, func(c netip.Prefix) bool { return c.Contains(pods.Addr()) && pods.Bits() >= c.Bits() })
}

// internal is the first internal address of a node in a family; the zero address if it has none.
func internal(node *corev1.Node, four bool) netip.Addr {
	for _, a := range node.Status.Addresses {
		address, err := netip.ParseAddr(a.Address)
		if a.Type == corev1.NodeInternalIP && err == nil && address.Is4() == four {
			return address
		}
	}
	return netip.Addr{}
}
