// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"slices"

	"sigs.k8s.io/controller-runtime/pkg/client"

	metal3v1 "github.com/muster-io/muster/apis/metal3/v1alpha1"
	"github.com/muster-io/muster/discovery-operator/internal/controller/baremetalhostdiscovery"
	"github.com/muster-io/muster/discovery-operator/internal/inventory"
)

// maxQuestions is how many Ironics are asked at the same time about one host.
const maxQuestions = 8

// discovered asks the Ironics of resources. All replicas do, because all serve the check.
type discovered struct {
	reader client.Reader
	from   *sources
}

// question is an Ironic that is asked with the credentials of a resource.
type question struct {
	namespace string
	ref       *metal3v1.IronicReference
}

// questions are the Ironics whose word counts for hosts of a namespace: the operator's own, those of namespaces that the administrator lets share, and those
// of the namespace itself. Any user can point a resource elsewhere at a server that says what the user likes.
func questions(list []metal3v1.BareMetalHostDiscovery, namespace string, address func(string, *metal3v1.IronicReference) inventory.Address) []question {
	asking := map[string][]inventory.Resource{}
	for i := range list {
		d := &list[i]
		if baremetalhostdiscovery.Refused(d) {
			continue
		}
		a := address(d.Namespace, d.Spec.Ironic)
		asking[a.Ironic] = append(asking[a.Ironic], inventory.Resource{
			Ref: inventory.Ref{Namespace: d.Namespace, Name: d.Name}, Created: d.CreationTimestamp.Time, UID: string(d.UID),
			Going: d.DeletionTimestamp != nil, Shared: a.Shared,
		})
	}
	asked := map[string]bool{}
	var out []question
	for i := range list {
		d := &list[i]
		a := address(d.Namespace, d.Spec.Ironic)
		counts := a.Endpoint != "" && (d.Spec.Ironic == nil || a.Shared || d.Namespace == namespace)
		key := a.View + " " + a.Session
		if !counts || asked[key] || !slices.ContainsFunc(inventory.Admitted(asking[a.Ironic]), func(r inventory.Resource) bool {
			return r.Namespace == d.Namespace && r.Name == d.Name
		}) {
			continue
		}
		asked[key] = true
		out = append(out, question{d.Namespace, d.Spec.Ironic})
	}
	return out
}

// Discovered implements admission.Nodes. It returns what was found by the end of the context, whatever is still being asked.
func (d discovered) Discovered(ctx context.Context, namespace, mac string) []inventory.Node {
	var list metal3v1.BareMetalHostDiscoveryList
	if err := d.reader.List(ctx, &list); err != nil {
		return nil
	}
	ask := questions(list.Items, namespace, d.from.Address)
	answers := make(chan *inventory.Node, len(ask))
	slots := make(chan struct{}, maxQuestions)
	for _, q := range ask {
		go func() {
			select {
			case slots <- struct{}{}:
				answers <- d.node(ctx, q, mac)
				<-slots
			case <-ctx.Done():
			}
		}()
	}
	var out []inventory.Node
	for range ask {
		select {
		case n := <-answers:
			if n != nil {
				out = append(out, *n)
			}
		case <-ctx.Done():
			return out
		}
	}
	return out
}

// node is the node that has a port with a MAC, nil where there is none, or no answer.
func (d discovered) node(ctx context.Context, q question, mac string) *inventory.Node {
	p, err := d.from.Provisioner(ctx, q.namespace, q.ref)
	if err != nil {
		return nil
	}
	uuid, err := p.Find(ctx, nil, []string{mac})
	if err != nil {
		return nil
	}
	n, err := p.Node(ctx, uuid)
	if err != nil {
		return nil
	}
	return &n
}
