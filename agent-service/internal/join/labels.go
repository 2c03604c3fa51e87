// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package join

import (
	"slices"
	"strings"
)

// kubeletLabels are those in namespaces of Kubernetes that a kubelet may give its own Node, beside those of kubeletNamespaces. The list is that of k8s.io/kubelet/pkg/apis.
var kubeletLabels = []string{
	"kubernetes.io/hostname", "kubernetes.io/os", "kubernetes.io/arch", "beta.kubernetes.io/os", "beta.kubernetes.io/arch",
	"node.kubernetes.io/instance-type", "beta.kubernetes.io/instance-type", "topology.kubernetes.io/zone", "topology.kubernetes.io/region",
	"failure-domain.beta.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/region",
}

var kubeletNamespaces = []string{"kubelet.kubernetes.io", "node.kubernetes.io"}

// Restricted says that a kubelet may not give its own Node a label of that key: one that is started with it ends, and the API server refuses it.
func Restricted(key string) bool {
	namespace, _, found := strings.Cut(key, "/")
	if !found || !slices.ContainsFunc([]string{"kubernetes.io", "k8s.io"}, func(of string) bool { return within(namespace, of) }) {
		return false
	}
	return !slices.Contains(kubeletLabels, key) && !slices.ContainsFunc(kubeletNamespaces, func(of string) bool { return within(namespace, of) })
}

// within says that a namespace of labels is another one, or below it.
func within(namespace, of string) bool {
	return namespace == of || strings.HasSuffix(namespace, "."+of)
}

// SplitLabels parts the labels of a node into those that its kubelet registers it with and those that only others may give it.
func SplitLabels(labels map[string]string) (own, restricted map[string]string) {
	for key, value := range labels {
		into := &own
		if Restricted(key) {
			into = &restricted
		}
		if *into == nil {
			*into = map[string]string{}
		}
		(*into)[key] = value
	}
	return own, restricted
}
