// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"fmt"
	"os"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	metal3v1 "github.com/muster-io/muster/apis/metal3/v1alpha1"
	"github.com/muster-io/muster/discovery-operator/internal/controller/baremetalhost"
	"github.com/muster-io/muster/discovery-operator/internal/demo"
	"github.com/muster-io/muster/discovery-operator/internal/fleet"
	"github.com/muster-io/muster/discovery-operator/internal/inventory"
	"github.com/muster-io/muster/discovery-operator/internal/ironic"
)

// sources finds the Ironic of a resource or host: the one that it names, else the operator's own, which can be the demo's rack.
type sources struct {
	dialer *ironic.Dialer
	// rack is nil where the operator's own Ironic is a real one.
	rack *demo.Rack
	// namespaces are those that share Ironics, and that the operator's own Ironic is for; none given means that it is for any.
	namespaces []string
}

func newSources(o Options, rack *demo.Rack, live client.Reader, observe ironic.Observer) *sources {
	s := &sources{rack: rack, namespaces: o.IronicNamespaces}
	s.dialer = ironic.NewDialer(
		func() (ironic.Config, error) { return ironic.FromEnvironment(o.env, os.ReadFile) },
		func(ctx context.Context, namespace, name string) (map[string][]byte, error) {
			var secret corev1.Secret
			if err := live.Get(ctx, types.NamespacedName{Namespace: namespace, Name: name}, &secret); err != nil {
				return nil, fmt.Errorf("reading Secret %s/%s: %w", namespace, name, err)
			}
			return secret.Data, nil
		}, observe)
	return s
}

// shared reports whether resources of a namespace may use an Ironic. With credentials of their own they may use any.
func (s *sources) shared(namespace string, ref *metal3v1.IronicReference) bool {
	return ref != nil || len(s.namespaces) == 0 || slices.Contains(s.namespaces, namespace) || slices.Contains(s.namespaces, everyNamespace)
}

// everyNamespace stands for all namespaces in a list of those that share.
const everyNamespace = "*"

// Address implements baremetalhostdiscovery.Sources.
func (s *sources) Address(namespace string, ref *metal3v1.IronicReference) inventory.Address {
	if !s.shared(namespace, ref) { // it neither reads with the others nor competes with them
		none := "not shared with " + namespace
		return inventory.Address{Ironic: none, View: none}
	}
	if ref == nil && s.rack != nil { // the machines of a rack have no owner
		return inventory.Address{Endpoint: "demo", Shared: true}
	}
	a := s.dialer.Address(namespace, ref)
	a.Shared = slices.Contains(s.namespaces, namespace) || slices.Contains(s.namespaces, everyNamespace)
	return a
}

// Source implements baremetalhostdiscovery.Sources.
func (s *sources) Source(ctx context.Context, namespace string, ref *metal3v1.IronicReference) (fleet.Source, error) {
	if !s.shared(namespace, ref) {
		return nil, inventory.Failf(inventory.ProblemNotShared,
			"the operator's own Ironic is not shared with namespace %s: name one in spec.ironic, or have the administrator add it to --ironic-namespaces", namespace)
	}
	if ref == nil && s.rack != nil {
		return s.rack, nil
	}
	return s.dialer.Client(ctx, namespace, ref)
}

// Provisioner implements baremetalhost.Provisioners.
func (s *sources) Provisioner(ctx context.Context, namespace string, ref *metal3v1.IronicReference) (baremetalhost.Manager, error) {
	if ref == nil && s.rack != nil {
		return s.rack, nil
	}
	client, err := s.dialer.Client(ctx, namespace, ref)
	if err != nil {
		return nil, err
	}
	return client, nil
}
