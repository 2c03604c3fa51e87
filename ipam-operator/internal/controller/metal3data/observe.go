// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package metal3data

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/muster-io/muster/apis/infrastructure/v1beta1"
	ipamv1 "github.com/muster-io/muster/apis/ipam/v1alpha1"
	metal3v1 "github.com/muster-io/muster/apis/metal3/v1alpha1"
	"github.com/muster-io/muster/apis/outcome"
	"github.com/muster-io/muster/ipam-operator/internal/allocate"
	"github.com/muster-io/muster/ipam-operator/internal/dataplan"
	"github.com/muster-io/muster/ipam-operator/internal/render"
)

// observe reads what a plan needs; data is nil where it is gone. Reads that are expensive happen only when the plan depends on them.
func (r *Reconciler) observe(ctx context.Context, name types.NamespacedName, data *infrav1.Metal3Data) (dataplan.Snapshot, error) {
	s := dataplan.Snapshot{NameByHost: r.NameByHost, Data: data, Secrets: map[string]*metav1.PartialObjectMetadata{}, Claims: map[render.Pool]dataplan.Claim{}}
	err := r.observeHold(ctx, &s)
	if err == nil {
		s.Owned, err = r.owned(ctx, name)
	}
	if err == nil && s.LooksLive() {
		s.LiveUID, err = r.liveUID(ctx, name)
	}
	if err == nil && s.LooksForClaim() {
		err = r.observeClaim(ctx, &s)
	}
	if err == nil && s.Waits() {
		r.Metrics.Data.Begins(name, r.Clock.Now())
	}
	if err == nil && s.Renders() {
		err = r.observeMachine(ctx, &s)
	}
	return s, err
}

// observeHold reads the template, and whether something may be done for its data.
func (r *Reconciler) observeHold(ctx context.Context, s *dataplan.Snapshot) error {
	if s.Data == nil {
		return nil
	}
	template := &infrav1.Metal3DataTemplate{}
	key := types.NamespacedName{Namespace: s.Data.Namespace, Name: s.Data.Spec.Template.Name}
	err := r.Client.Get(ctx, key, template)
	switch {
	case apierrors.IsNotFound(err):
		s.Hold, err = r.Clusters.HoldFor(ctx, "", s.Data)
	case err != nil:
		return fmt.Errorf("reading Metal3DataTemplate %s: %w", key, err)
	default:
		s.Template = template
		s.Hold, err = r.Clusters.HoldFor(ctx, template.Spec.ClusterName, s.Data, template)
	}
	return err
}

// owned are the claims of both kinds that Metal3Data of a name own, or owned.
func (r *Reconciler) owned(ctx context.Context, name types.NamespacedName) ([]dataplan.Claim, error) {
	of := []client.ListOption{client.InNamespace(name.Namespace), client.MatchingFields{claimByData: name.Name}}
	ours := &ipamv1.IPClaimList{}
	if err := r.Client.List(ctx, ours, of...); err != nil {
		return nil, fmt.Errorf("listing the IPClaims of Metal3Data %s: %w", name, err)
	}
	var out []dataplan.Claim
	for i := range ours.Items {
		out = append(out, dataplan.Claim{Object: &ours.Items[i], Kind: ipamv1.IPClaimKind})
	}
	if kind, ok := r.kinds.get(dataplan.ContractClaimKind); ok {
		theirs := &unstructured.UnstructuredList{}
		theirs.SetGroupVersionKind(kind)
		if err := r.Cache.List(ctx, theirs, of...); err != nil {
			return nil, fmt.Errorf("listing the IPAddressClaims of Metal3Data %s: %w", name, err)
		}
		for i := range theirs.Items {
			out = append(out, dataplan.Claim{Object: &theirs.Items[i], Kind: kind.Kind})
		}
	}
	for i := range out {
		hold, err := r.Clusters.HoldFor(ctx, "", out[i].Object)
		if err != nil {
			return nil, err
		}
		out[i].Paused = hold == allocate.HeldPaused
	}
	return out, nil
}

// liveUID is that of the data that the API server has; empty where it has none.
func (r *Reconciler) liveUID(ctx context.Context, name types.NamespacedName) (types.UID, error) {
	live := &infrav1.Metal3Data{}
	if err := r.Live.Get(ctx, name, live); err != nil && !outcome.IsGone(err) {
		return "", fmt.Errorf("reading Metal3Data %s: %w", name, err)
	}
	return live.UID, nil
}

// observeClaim reads the claim that data belongs to and the Secrets that it names, up to the first that is not there.
func (r *Reconciler) observeClaim(ctx context.Context, s *dataplan.Snapshot) error {
	key := types.NamespacedName{Namespace: s.Data.Namespace, Name: s.Data.Spec.Claim.Name}
	for _, reader := range []client.Reader{r.Client, r.Live} {
		claim := &infrav1.Metal3DataClaim{}
		err := reader.Get(ctx, key, claim)
		if outcome.IgnoreGone(err) != nil {
			return fmt.Errorf("reading Metal3DataClaim %s: %w", key, err)
		}
		if err == nil && dataplan.Belongs(s.Data, claim) {
			s.Claim = claim
			break
		}
	}
	if s.Claim == nil {
		return nil
	}
	for _, name := range dataplan.SecretsOf(s.Data) {
		if err := r.observeSecret(ctx, s, name); err != nil {
			return err
		}
		if s.Secrets[name] == nil {
			break
		}
	}
	return nil
}

// observeSecret looks for a Secret, once.
func (r *Reconciler) observeSecret(ctx context.Context, s *dataplan.Snapshot, name string) error {
	if _, looked := s.Secrets[name]; looked {
		return nil
	}
	key := types.NamespacedName{Namespace: s.Data.Namespace, Name: name}
	found := &metav1.PartialObjectMetadata{}
	found.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Secret"))
	err := r.Client.Get(ctx, key, found)
	if apierrors.IsNotFound(err) {
		err = r.Live.Get(ctx, key, found) // only Secrets of the rendered type are in the cache
	}
	if apierrors.IsNotFound(err) {
		s.Secrets[name] = nil
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading Secret %s: %w", key, err)
	}
	s.Secrets[name] = found
	return nil
}

// observeMachine reads the machine that a claim is for, from the API server, once per rendering, then the claims of its addresses.
func (r *Reconciler) observeMachine(ctx context.Context, s *dataplan.Snapshot) error {
	data := client.ObjectKeyFromObject(s.Data)
	r.waits.drop(data)
	owner, ok := dataplan.MachineOf(s.Claim)
	if !ok {
		return nil
	}
	host := types.NamespacedName{Namespace: data.Namespace, Name: owner.Name}
	if owner.Kind == infrav1.Metal3MachineKind {
		var err error
		if host, ok, err = r.observeMachines(ctx, data, host, &s.Machine); !ok || err != nil {
			return err
		}
	}
	if err := r.observeHost(ctx, data, host, &s.Machine); err != nil {
		return err
	}
	for _, want := range s.Wants() {
		if err := r.observeWant(ctx, s, want); err != nil {
			return err
		}
	}
	for _, name := range s.SecretsToRender() {
		if err := r.observeSecret(ctx, s, name); err != nil {
			return err
		}
	}
	return nil
}

// observeMachines reads the machines of Cluster API, and returns the host that they run on.
func (r *Reconciler) observeMachines(ctx context.Context, data, name types.NamespacedName, m *dataplan.Machine) (host types.NamespacedName, ok bool, err error) {
	if m.Metal3Machine, err = r.foreign(ctx, data, dataplan.Metal3MachineKind, name); m.Metal3Machine.PartialObjectMetadata == nil || err != nil {
		return host, false, err
	}
	owner, ok := dataplan.OwnerOf(m.Metal3Machine, dataplan.MachineKind)
	if !ok {
		return host, false, nil
	}
	m.Machine, err = r.foreign(ctx, data, dataplan.MachineKind, types.NamespacedName{Namespace: name.Namespace, Name: owner.Name})
	host, ok = dataplan.HostOf(m.Metal3Machine)
	return host, ok, err
}

// foreign reads the metadata of an object of another project's kind. Data is served again when that object changes.
func (r *Reconciler) foreign(ctx context.Context, data types.NamespacedName, kind schema.GroupKind, name types.NamespacedName) (dataplan.Found, error) {
	r.waits.on(data, object{kind, name})
	served, ok := r.kinds.get(kind)
	if !ok {
		return dataplan.Found{NotServed: true}, nil
	}
	found := &metav1.PartialObjectMetadata{}
	found.SetGroupVersionKind(served)
	if err := r.Live.Get(ctx, name, found); isAbsent(err) {
		return dataplan.Found{}, nil
	} else if err != nil {
		return dataplan.Found{}, fmt.Errorf("reading %s %s: %w", kind.Kind, name, err)
	}
	return dataplan.Found{PartialObjectMetadata: found}, nil
}

// observeHost reads the BareMetalHost and what inspection found of it.
func (r *Reconciler) observeHost(ctx context.Context, data, name types.NamespacedName, m *dataplan.Machine) error {
	r.waits.on(data, object{dataplan.HostKind, name})
	host := &metal3v1.BareMetalHost{}
	if err := r.Live.Get(ctx, name, host); isAbsent(err) {
		return nil
	} else if err != nil {
		return fmt.Errorf("reading BareMetalHost %s: %w", name, err)
	}
	m.Host, m.Hardware = host, host.Status.HardwareDetails
	if m.Hardware != nil {
		return nil
	}
	kept := &metal3v1.HardwareData{}
	if err := r.Live.Get(ctx, name, kept); err != nil && !isAbsent(err) {
		return fmt.Errorf("reading HardwareData %s: %w", name, err)
	}
	m.Hardware = kept.Spec.HardwareDetails
	return nil
}

// observeWant reads the claim of a pool and its address. Data is served again when the claim changes.
func (r *Reconciler) observeWant(ctx context.Context, s *dataplan.Snapshot, want dataplan.Want) error {
	data := client.ObjectKeyFromObject(s.Data)
	name := types.NamespacedName{Namespace: data.Namespace, Name: want.Name}
	claim := dataplan.Claim{Kind: want.Kind}
	var reader client.Reader = r.Client
	if want.Pool.IsIPPool() {
		r.waits.on(data, object{ipClaimKind, name})
		claim.Object = &ipamv1.IPClaim{}
	} else {
		r.waits.on(data, object{kind: dataplan.ContractClaimKind})
		r.waits.on(data, object{dataplan.ContractClaimKind, name})
		served, ok := r.kinds.get(dataplan.ContractClaimKind)
		if !ok {
			s.NoContract = true
			return nil
		}
		reader, claim.Object = r.Live, ofKind(served)
	}
	if err := reader.Get(ctx, name, claim.Object); apierrors.IsNotFound(err) {
		return nil
	} else if err != nil {
		return fmt.Errorf("reading %s %s: %w", want.Kind, name, err)
	}
	if err := r.observeAddress(ctx, data, &claim); err != nil {
		return err
	}
	s.Claims[want.Pool] = claim
	return nil
}

// observeAddress reads the address that a claim has, and its pool where the address states no prefix.
func (r *Reconciler) observeAddress(ctx context.Context, data types.NamespacedName, claim *dataplan.Claim) error {
	name := types.NamespacedName{Namespace: data.Namespace, Name: claim.AddressName()}
	if name.Name == "" {
		return nil
	}
	var address dataplan.Object = &ipamv1.IPAddress{}
	readers := []client.Reader{r.Client, r.Live}
	if theirs, ok := claim.Object.(*unstructured.Unstructured); ok {
		address, readers = ofKind(theirs.GroupVersionKind().GroupVersion().WithKind(ipamv1.IPAddressKind)), readers[1:]
	}
	for _, reader := range readers {
		err := reader.Get(ctx, name, address)
		if err == nil {
			claim.Address = address
			break
		}
		if !apierrors.IsNotFound(err) {
			return fmt.Errorf("reading IPAddress %s: %w", name, err)
		}
	}
	if pool := claim.PoolToRead(); pool != "" {
		return r.observePool(ctx, data, types.NamespacedName{Namespace: data.Namespace, Name: pool}, claim)
	}
	return nil
}

func (r *Reconciler) observePool(ctx context.Context, data, name types.NamespacedName, claim *dataplan.Claim) error {
	r.waits.on(data, object{ipPoolKind, name})
	pool := &ipamv1.IPPool{}
	if err := r.Client.Get(ctx, name, pool); apierrors.IsNotFound(err) {
		return nil
	} else if err != nil {
		return fmt.Errorf("reading IPPool %s: %w", name, err)
	}
	claim.Layout = r.Layouts.Of(pool)
	return nil
}

func ofKind(kind schema.GroupVersionKind) *unstructured.Unstructured {
	obj := &unstructured.Unstructured{}
	obj.SetGroupVersionKind(kind)
	return obj
}

// isAbsent reports whether there is no such object, or no such kind.
func isAbsent(err error) bool { return apierrors.IsNotFound(err) || meta.IsNoMatchError(err) }
