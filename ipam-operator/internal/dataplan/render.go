// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package dataplan

import (
	"cmp"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	infrav1 "github.com/muster-io/muster/apis/infrastructure/v1beta1"
	ipamv1 "github.com/muster-io/muster/apis/ipam/v1alpha1"
	"github.com/muster-io/muster/ipam-operator/internal/render"
)

// Secrets are the names of what a template renders for a machine.
func Secrets(template *infrav1.Metal3DataTemplate, machine string) (metaData, networkData *infrav1.SecretReference) {
	if template.Spec.MetaData != nil {
		metaData = &infrav1.SecretReference{Name: machine + infrav1.MetaDataSuffix, Namespace: template.Namespace}
	}
	if template.Spec.NetworkData != nil {
		networkData = &infrav1.SecretReference{Name: machine + infrav1.NetworkDataSuffix, Namespace: template.Namespace}
	}
	return metaData, networkData
}

// SecretsOf are the names of the Secrets that data names.
func SecretsOf(data *infrav1.Metal3Data) []string {
	var out []string
	for _, ref := range []*infrav1.SecretReference{data.Spec.MetaData, data.Spec.NetworkData} {
		if ref != nil && ref.Name != "" {
			out = append(out, ref.Name)
		}
	}
	return out
}

// isRendered reports whether everything is done: the Secrets are there, and the status says so. Where the status says nothing, as after a move, Secrets
// that were rendered for this data say it: what they were rendered from is not asked for again.
func (s *Snapshot) isRendered() bool {
	isSaid := s.Data.Status.Ready && s.Data.Status.ErrorMessage == nil
	isShown := false
	for _, name := range SecretsOf(s.Data) {
		secret := s.Secrets[name]
		if secret == nil || s.inTheWay(secret) != "" {
			return false
		}
		if isShown = metav1.IsControlledBy(secret, s.Data); !isSaid && !isShown {
			return false
		}
	}
	return isSaid || isShown
}

// inTheWay is why a Secret cannot be used; empty where it can. One that another Metal3Data left behind is on its way out and must not be used; a user
// made one that no Metal3Data owns, to be used.
func (s *Snapshot) inTheWay(secret *metav1.PartialObjectMetadata) string {
	if owner := metav1.GetControllerOf(secret); owner != nil && owner.Kind == infrav1.Metal3DataKind && owner.UID != s.Data.UID {
		return fmt.Sprintf("Secret %s belongs to another Metal3Data, %s", secret.Name, owner.Name)
	}
	if !secret.DeletionTimestamp.IsZero() {
		return fmt.Sprintf("Secret %s is being deleted", secret.Name)
	}
	return ""
}

// render claims addresses and, when all are known, writes the Secrets that are not there.
func (s *Snapshot) render() Decision {
	subject, why := s.subject()
	if why != "" {
		return refuse(WhyMachineNotReady, why)
	}
	data := s.prepared(subject.Name)
	d := s.renderFor(subject, data)
	if d.Report.Ready && isRestored(s.Data) { // its claims have their owner by now
		machine, _ := MachineOf(s.Claim)
		data.OwnerReferences = append(data.OwnerReferences, Owners(s.Template, s.Claim, machine)...)
	}
	if !equality.Semantic.DeepEqual(s.Data, data) {
		d.Actions = append([]Action{UpdateData{data}}, d.Actions...)
	}
	return d
}

func (s *Snapshot) renderFor(subject *render.Subject, data *infrav1.Metal3Data) Decision {
	pools, err := render.Pools(&s.Template.Spec, subject)
	if err != nil {
		return refuse(WhyNotRenderable, err.Error())
	}
	addresses, claims, why, complete := s.addresses(subject, pools)
	if !complete {
		d := refuse(WhyNoAddress, why)
		d.Actions = claims
		return d
	}
	d := ready()
	if template := s.Template.Spec.MetaData; template != nil {
		d = s.write(d, data.Spec.MetaData.Name, infrav1.MetaDataKey, func() ([]byte, error) {
			return render.MetaData(template, subject, addresses)
		})
	}
	if template := s.Template.Spec.NetworkData; template != nil && d.Report.Ready {
		d = s.write(d, data.Spec.NetworkData.Name, infrav1.NetworkDataKey, func() ([]byte, error) {
			return render.NetworkData(template, subject, addresses)
		})
	}
	return d
}

// prepared is the data with the finalizer and the names of the Secrets, which data that another client made may lack.
func (s *Snapshot) prepared(machine string) *infrav1.Metal3Data {
	data := s.Data.DeepCopy()
	if !slices.Contains(data.Finalizers, infrav1.DataFinalizer) {
		data.Finalizers = append(data.Finalizers, infrav1.DataFinalizer)
	}
	metaData, networkData := Secrets(s.Template, machine)
	if data.Spec.MetaData == nil || data.Spec.MetaData.Name == "" {
		data.Spec.MetaData = metaData
	}
	if data.Spec.NetworkData == nil || data.Spec.NetworkData.Name == "" {
		data.Spec.NetworkData = networkData
	}
	return data
}

// write adds a Secret to a decision, unless it is there: what a machine was provisioned with stays as it is.
func (s *Snapshot) write(d Decision, name, key string, content func() ([]byte, error)) Decision {
	if there := s.Secrets[name]; there != nil {
		if why := s.inTheWay(there); why != "" {
			d.Why, d.Report = WhySecretInTheWay, &Report{Message: why}
		}
		return d
	}
	rendered, err := content()
	if err != nil {
		d.Why, d.Report = WhyNotRenderable, &Report{Message: err.Error()}
		return d
	}
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.Data.Namespace, Name: name, OwnerReferences: []metav1.OwnerReference{s.controller()}},
		Type:       infrav1.SecretType,
		Data:       map[string][]byte{key: rendered},
	}
	if cluster := cmp.Or(s.Template.Labels[ipamv1.ClusterNameLabel], s.Template.Spec.ClusterName, s.Data.Labels[ipamv1.ClusterNameLabel]); cluster != "" {
		secret.Labels = map[string]string{ipamv1.ClusterNameLabel: cluster}
	}
	d.Actions = append(d.Actions, CreateSecret{secret})
	return d
}
