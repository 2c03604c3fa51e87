// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package check

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/muster-io/muster/apis/infrastructure/v1beta1"
	"github.com/muster-io/muster/ipam-operator/internal/dataplan"
)

// networkData is templates, claims and data of network data, and which of the Secrets that data names are missing.
type networkData struct {
	templates map[types.NamespacedName]*infrav1.Metal3DataTemplate
	claims    map[types.NamespacedName]*infrav1.Metal3DataClaim
	data      map[types.NamespacedName]*infrav1.Metal3Data
	lost      map[types.NamespacedName]bool
}

// readNetworkData reads the objects of network data; where the kinds are not installed there are none.
func readNetworkData(ctx context.Context, reader client.Reader, namespace string) (*networkData, error) {
	n := &networkData{
		templates: map[types.NamespacedName]*infrav1.Metal3DataTemplate{}, claims: map[types.NamespacedName]*infrav1.Metal3DataClaim{},
		data: map[types.NamespacedName]*infrav1.Metal3Data{}, lost: map[types.NamespacedName]bool{},
	}
	templates, claims, data := &infrav1.Metal3DataTemplateList{}, &infrav1.Metal3DataClaimList{}, &infrav1.Metal3DataList{}
	for _, list := range []client.ObjectList{data, claims, templates} {
		err := reader.List(ctx, list, client.InNamespace(namespace))
		if meta.IsNoMatchError(err) || apierrors.IsNotFound(err) {
			return n, nil
		}
		if err != nil {
			return nil, fmt.Errorf("listing %T: %w", list, err)
		}
	}
	index(n.templates, templates.Items)
	index(n.claims, claims.Items)
	index(n.data, data.Items)
	return n, n.readSecrets(ctx, reader)
}

// readSecrets looks whether Secrets exist, not at their content. For a user without that right it reports no finding.
func (n *networkData) readSecrets(ctx context.Context, reader client.Reader) error {
	for _, data := range n.data {
		for _, name := range secretsOf(data) {
			key := types.NamespacedName{Namespace: data.Namespace, Name: name}
			secret := &metav1.PartialObjectMetadata{}
			secret.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Secret"))
			switch err := reader.Get(ctx, key, secret); {
			case apierrors.IsNotFound(err):
				n.lost[key] = true
			case err != nil && !apierrors.IsForbidden(err):
				return fmt.Errorf("looking for Secret %s: %w", key, err)
			}
		}
	}
	return nil
}

// secretsOf are the Secrets that must be there.
func secretsOf(data *infrav1.Metal3Data) []string {
	if !data.Status.Ready {
		return nil
	}
	return dataplan.SecretsOf(data)
}

func (o *objects) networkDataFindings() []Finding {
	return slices.Concat(o.network.dataFindings(), o.network.claimFindings(), o.network.templateFindings(), o.leftClaimFindings())
}

// dataFindings looks for the template, the claim and the Secrets of data.
func (n *networkData) dataFindings() []Finding {
	var out []Finding
	held := map[types.NamespacedName]string{}
	for _, key := range sorted(n.data) {
		data := n.data[key]
		if !data.DeletionTimestamp.IsZero() {
			continue
		}
		found := func(p Problem, format string, args ...any) {
			out = append(out, Finding{p, "Metal3Data " + key.String(), fmt.Sprintf(format, args...)})
		}
		if n.templates[types.NamespacedName{Namespace: key.Namespace, Name: data.Spec.Template.Name}] == nil {
			found(Dangling, "its Metal3DataTemplate %s does not exist", data.Spec.Template.Name)
		}
		if want := data.Spec.Template.Name + "-" + strconv.Itoa(data.Spec.Index); key.Name != want {
			found(Mismatch, "has index %d, whose name in the template is %s", data.Spec.Index, want)
		}
		for _, secret := range secretsOf(data) {
			if n.lost[types.NamespacedName{Namespace: key.Namespace, Name: secret}] {
				found(Dangling, "its Secret %s does not exist", secret)
			}
		}
		at := types.NamespacedName{Namespace: key.Namespace, Name: data.Spec.Claim.Name}
		switch claim := n.claims[at]; {
		case claim == nil:
			found(Orphan, "its Metal3DataClaim %s does not exist", at.Name)
		case !owns(claim, infrav1.Metal3DataClaimKind, data):
			found(Orphan, "its Metal3DataClaim %s was deleted and created again", at.Name)
		case held[at] != "":
			found(Double, "Metal3DataClaim %s has Metal3Data %s too", at.Name, held[at])
		default:
			held[at] = key.Name
		}
	}
	return out
}

// owns reports whether no other object of its name and kind owns what this one should.
func owns(owner client.Object, kind string, obj client.Object) bool {
	for _, ref := range obj.GetOwnerReferences() {
		if ref.Kind == kind && ref.Name == owner.GetName() {
			return ref.UID == owner.GetUID()
		}
	}
	return true
}

// claimFindings looks at what claims say that they have.
func (n *networkData) claimFindings() []Finding {
	var out []Finding
	named := map[types.NamespacedName]string{}
	for _, key := range sorted(n.claims) {
		claim := n.claims[key]
		if claim.Status.RenderedData == nil || !claim.DeletionTimestamp.IsZero() {
			continue
		}
		found := func(p Problem, format string, args ...any) {
			out = append(out, Finding{p, "Metal3DataClaim " + key.String(), fmt.Sprintf(format, args...)})
		}
		at := types.NamespacedName{Namespace: key.Namespace, Name: claim.Status.RenderedData.Name}
		if other, ok := named[at]; ok {
			found(Double, "names Metal3Data %s, as Metal3DataClaim %s does", at.Name, other)
		}
		named[at] = key.Name
		switch data := n.data[at]; {
		case data == nil:
			found(Dangling, "its Metal3Data %s does not exist", at.Name)
		case data.Spec.Claim.Name != key.Name:
			found(Mismatch, "its Metal3Data %s belongs to %s", at.Name, data.Spec.Claim.Name)
		}
	}
	return out
}

// templateFindings compares the status of templates with the data.
func (n *networkData) templateFindings() []Finding {
	var out []Finding
	for _, key := range sorted(n.templates) {
		for claim, index := range n.templates[key].Status.Indexes {
			data := n.data[types.NamespacedName{Namespace: key.Namespace, Name: key.Name + "-" + strconv.Itoa(index)}]
			if data == nil || data.Spec.Claim.Name != claim {
				out = append(out, Finding{Mismatch, "Metal3DataTemplate " + key.String(), fmt.Sprintf("status.indexes gives %d to %s, who does not have it", index, claim)})
			}
		}
	}
	return out
}

// leftClaimFindings looks for IPClaims whose Metal3Data is gone.
func (o *objects) leftClaimFindings() []Finding {
	var out []Finding
	for _, key := range sorted(o.claims) {
		claim := o.claims[key]
		owner := metav1.GetControllerOf(claim)
		if owner == nil || owner.Kind != infrav1.Metal3DataKind {
			continue
		}
		data := o.network.data[types.NamespacedName{Namespace: key.Namespace, Name: owner.Name}]
		if data == nil || data.UID != owner.UID {
			out = append(out, Finding{Orphan, "IPClaim " + key.String(), fmt.Sprintf("its Metal3Data %s does not exist", owner.Name)})
		}
	}
	return out
}
