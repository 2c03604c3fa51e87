// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package kubeclient makes the clients with which the console asks the Kubernetes API for a user.
package kubeclient

import (
	"fmt"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	agentv1 "github.com/muster-io/muster/apis/agentinstall/v1beta1"
	hivev1 "github.com/muster-io/muster/apis/hive/v1"
	ipamv1 "github.com/muster-io/muster/apis/ipam/v1alpha1"
)

// FieldOwner is the manager of fields that the console writes.
const FieldOwner = client.FieldOwner("agent-service-console")

// patience is how long a person waits for an answer of an API server that hangs. Those of admission webhooks may take 10 seconds.
const patience = 30 * time.Second

// Clients makes clients of the Kubernetes API that have a person's token and nothing of the service's own credentials.
type Clients struct {
	config *rest.Config
	scheme *runtime.Scheme
	mapper meta.RESTMapper
}

// New keeps of a configuration where the API server is and how it is trusted.
func New(config *rest.Config) (*Clients, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, authenticationv1.AddToScheme, authorizationv1.AddToScheme, agentv1.AddToScheme, hivev1.AddToScheme, ipamv1.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, fmt.Errorf("building the scheme: %w", err)
		}
	}
	// The kinds are known, so that no client has to discover them.
	mapper := meta.NewDefaultRESTMapper(nil)
	for _, kind := range []string{"ClusterPool", "ClusterClaim", "ClusterDeployment"} {
		mapper.Add(hivev1.GroupVersion.WithKind(kind), meta.RESTScopeNamespace)
	}
	mapper.Add(agentv1.GroupVersion.WithKind("Agent"), meta.RESTScopeNamespace)
	mapper.Add(ipamv1.GroupVersion.WithKind("IPPool"), meta.RESTScopeNamespace)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("Secret"), meta.RESTScopeNamespace)
	mapper.Add(authorizationv1.SchemeGroupVersion.WithKind("SelfSubjectAccessReview"), meta.RESTScopeRoot)
	mapper.Add(authenticationv1.SchemeGroupVersion.WithKind("SelfSubjectReview"), meta.RESTScopeRoot)
	anonymous := rest.AnonymousClientConfig(config)
	anonymous.UserAgent = string(FieldOwner)
	anonymous.Timeout = patience
	return &Clients{config: anonymous, scheme: scheme, mapper: mapper}, nil
}

// Client returns a client that is the person's of a token.
func (k *Clients) Client(token string) (client.Client, error) {
	own := rest.CopyConfig(k.config)
	own.BearerToken = token
	found, err := client.New(own, client.Options{Scheme: k.scheme, Mapper: k.mapper})
	if err != nil {
		return nil, fmt.Errorf("preparing a client of the Kubernetes API: %w", err)
	}
	return found, nil
}
