// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"context"
	"fmt"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/muster-io/muster/apis/outcome"
	"github.com/muster-io/muster/pool-operator/internal/provision"
	"github.com/muster-io/muster/pool-operator/internal/provision/changes"
)

// Runtime implements the port of package controller/clusterdeployment.
type Runtime struct {
	options Options
	changes *changes.Changes

	mu sync.Mutex
	// routes reads and writes TLSRoutes.
	routes client.Client
	// failures are of what could not even be asked for; what fails later is seen on the pod.
	failures map[provision.ClusterRef]failure
}

// failure remembers what the API server refused.
type failure struct {
	problem provision.Problem
	count   int32
	since   time.Time
}

// New returns a runtime. It starts nothing; Watch brings its wake-ups.
func New(options Options) *Runtime {
	options.setDefaults()
	return &Runtime{options: options, changes: changes.New(), routes: options.Client, failures: map[provision.ClusterRef]failure{}}
}

// Changes implements the port.
func (r *Runtime) Changes() *changes.Changes { return r.changes }

// +kubebuilder:rbac:groups="",resources=secrets,verbs=get;list;create;patch;delete
// +kubebuilder:rbac:groups="",resources=services,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups="",resources=pods,verbs=get;list;watch
// +kubebuilder:rbac:groups="",resources=events,verbs=list
// +kubebuilder:rbac:groups="",resources=persistentvolumeclaims,verbs=get;list;watch;delete
// +kubebuilder:rbac:groups=apps,resources=statefulsets,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=networking.k8s.io,resources=networkpolicies,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=gateway.networking.k8s.io,resources=tlsroutes,verbs=get;delete

// Start implements the port.
func (r *Runtime) Start(ctx context.Context, ref provision.ClusterRef, spec provision.Spec) error {
	return r.record(ref, "starting", r.start(ctx, ref, spec))
}

// start makes all objects. The network policy is there before anything runs. Without an address there is no certificate yet, and the pod waits for it.
func (r *Runtime) start(ctx context.Context, ref provision.ClusterRef, spec provision.Spec) error {
	if spec.Nodes != nil {
		return &provision.Problem{
			Reason:  provision.ReasonRefused,
			Message: "spec.platform.hosted.nodes is set, and hosted clusters that run as pods take no nodes: run pool-operator with --hosted-runtime=process",
		}
	}
	identity, err := r.ensureIdentity(ctx, ref, spec)
	if err != nil {
		return err
	}
	if err := r.isolate(ctx, ref); err != nil {
		return err
	}
	current, err := read(ctx, r.options.Client, ref, objectName(ref), &corev1.Service{})
	if err != nil {
		return err
	}
	if err := r.expose(ctx, ref, identity, current); err != nil {
		return err
	}
	if err := r.renew(ctx, ref); err != nil {
		return err
	}
	volume, err := r.volume(ctx, ref)
	if err != nil {
		return err
	}
	return r.apply(ctx, statefulSet(ref, &r.options, volume, featuresOf(identity, spec)))
}

// isolate makes the network policy of a cluster, or makes one that another client changed what it was: an apply would leave what the other added. One that another replica made meanwhile is
// looked at, too.
func (r *Runtime) isolate(ctx context.Context, ref provision.ClusterRef) error {
	return retry.OnError(retry.DefaultRetry, apierrors.IsAlreadyExists, func() error {
		policy := &networkingv1.NetworkPolicy{ObjectMeta: named(ref, objectName(ref))}
		_, err := controllerutil.CreateOrPatch(ctx, client.WithFieldOwner(r.options.Client, FieldOwner), policy, func() error {
			policy.Labels, policy.Annotations = labelsOf(ref), map[string]string{NameAnnotation: ref.Name}
			policy.Spec = isolation(ref)
			return nil
		})
		return err
	})
}

func (r *Runtime) apply(ctx context.Context, object runtime.ApplyConfiguration) error {
	return r.options.Client.Apply(ctx, object, client.FieldOwner(FieldOwner), client.ForceOwnership)
}

// Stop implements the port.
func (r *Runtime) Stop(ctx context.Context, ref provision.ClusterRef) error {
	_, err := r.endAlone(ctx, ref)
	if err == nil {
		err = r.edit(ctx, ref, func(spec *appsv1.StatefulSetSpec) { spec.Replicas = new(int32(0)) })
	}
	return r.record(ref, "stopping", err)
}

// endAlone makes the StatefulSet of a pod again that lost it, with no replicas, so that its controller adopts the pod and ends it. It reports whether there is such a pod.
func (r *Runtime) endAlone(ctx context.Context, ref provision.ClusterRef) (bool, error) {
	f, err := r.look(ctx, ref)
	if err != nil || !isAlone(f.pod) {
		return false, err
	}
	volume, err := r.volume(ctx, ref)
	if err != nil {
		return true, err
	}
	with := features{}
	if f.secret != nil {
		with = featuresOf(f.secret, provision.Spec{})
	}
	set := statefulSet(ref, &r.options, volume, with)
	set.Spec.WithReplicas(0)
	return true, r.apply(ctx, set)
}

// mend makes the StatefulSet of a cluster that runs have one pod at most, and leave its volume claim when another client deletes it: those of before took it along. With guard, the next pod
// does not begin with nothing, as those of before did; the pod that runs stays.
func mend(spec *appsv1.StatefulSetSpec, ref provision.ClusterRef, guard bool) {
	if container := etcdOf(&spec.Template.Spec); guard && container != nil {
		spec.UpdateStrategy = appsv1.StatefulSetUpdateStrategy{Type: appsv1.OnDeleteStatefulSetStrategyType}
		container.Env = append(container.Env, corev1.EnvVar{Name: stateVariable, ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{
			LocalObjectReference: corev1.LocalObjectReference{Name: ref.ServingName()}, Key: stateKey, Optional: new(true),
		}}})
	}
	spec.Replicas = new(min(ptr.Deref(spec.Replicas, 1), 1))
	if policy := spec.PersistentVolumeClaimRetentionPolicy; policy != nil {
		policy.WhenDeleted = appsv1.RetainPersistentVolumeClaimRetentionPolicyType
	}
}

// edit changes the StatefulSet of a cluster. It retries after a concurrent change of the StatefulSet, as by its controller.
func (r *Runtime) edit(ctx context.Context, ref provision.ClusterRef, change func(*appsv1.StatefulSetSpec)) error {
	return retry.RetryOnConflict(retry.DefaultRetry, func() error {
		var current appsv1.StatefulSet
		if err := r.options.Client.Get(ctx, key(ref, objectName(ref)), &current); err != nil {
			return client.IgnoreNotFound(err)
		}
		changed := current.DeepCopy()
		change(&changed.Spec)
		if equality.Semantic.DeepEqual(current.Spec, changed.Spec) {
			return nil
		}
		return r.options.Client.Patch(ctx, changed, client.MergeFromWithOptions(&current, client.MergeFromWithOptimisticLock{}), client.FieldOwner(FieldOwner))
	})
}

// Delete implements the port. The Secret goes last: for as long as it is there, the cluster is, and Delete is called again.
func (r *Runtime) Delete(ctx context.Context, ref provision.ClusterRef) error {
	if alone, err := r.endAlone(ctx, ref); alone || err != nil {
		return r.record(ref, "deleting", err) // the StatefulSet is there, so that Delete is called again
	}
	if r.options.Expose == ExposeGateway { // a route of another exposure goes with its Service
		if err := r.deleteRoute(ctx, ref); err != nil {
			return r.record(ref, "deleting", err)
		}
	}
	running := []client.Object{
		&corev1.Service{ObjectMeta: named(ref, objectName(ref))},
		&appsv1.StatefulSet{ObjectMeta: named(ref, objectName(ref))},
	}
	kept := []client.Object{
		&corev1.PersistentVolumeClaim{ObjectMeta: named(ref, volumeName(ref))},
		&corev1.Secret{ObjectMeta: named(ref, ref.ServingName())},
		&corev1.Secret{ObjectMeta: named(ref, objectName(ref))},
	}
	err := r.deleteObjects(ctx, running)
	if err == nil {
		err = r.deletePolicy(ctx, ref)
	}
	if err == nil {
		err = r.deleteObjects(ctx, kept)
	}
	if err == nil {
		r.changes.Add(ref)
	}
	return r.record(ref, "deleting", err)
}

func (r *Runtime) deleteObjects(ctx context.Context, objects []client.Object) error {
	for _, object := range objects {
		if err := deleteObject(ctx, r.options.Client, object); err != nil {
			return err
		}
	}
	return nil
}

// deletePolicy deletes the network policy of a cluster that has no StatefulSet any more. While pods of it end, which takes their grace period, the policy belongs to them, so that
// the garbage collector deletes it when they are gone and not before.
func (r *Runtime) deletePolicy(ctx context.Context, ref provision.ClusterRef) error {
	pods := &corev1.PodList{}
	if err := r.options.Client.List(ctx, pods, client.InNamespace(ref.Namespace), client.MatchingLabels{Label: string(ref.UID)}); err != nil {
		return err
	}
	if len(pods.Items) == 0 {
		return deleteObject(ctx, r.options.Client, &networkingv1.NetworkPolicy{ObjectMeta: named(ref, objectName(ref))})
	}
	policy, err := read(ctx, r.options.Client, ref, objectName(ref), &networkingv1.NetworkPolicy{})
	if err != nil || policy == nil {
		return err
	}
	owned := policy.DeepCopy()
	owned.OwnerReferences = nil
	for i := range pods.Items {
		owned.OwnerReferences = append(owned.OwnerReferences, metav1.OwnerReference{APIVersion: "v1", Kind: "Pod", Name: pods.Items[i].Name, UID: pods.Items[i].UID})
	}
	err = r.options.Client.Patch(ctx, owned, client.MergeFrom(policy), client.FieldOwner(FieldOwner))
	return client.IgnoreNotFound(err)
}

// deleteObject deletes the object that exists now, and not one that another client creates under the same name in the meantime.
func deleteObject(ctx context.Context, c client.Client, object client.Object) error {
	err := c.Get(ctx, client.ObjectKeyFromObject(object), object)
	if err == nil && object.GetDeletionTimestamp() == nil {
		uid := object.GetUID()
		err = c.Delete(ctx, object, client.Preconditions{UID: &uid}, client.PropagationPolicy(metav1.DeletePropagationBackground))
	}
	return outcome.IgnoreGone(err)
}

func named(ref provision.ClusterRef, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: ref.Namespace, Name: name}
}

// ensureIdentity creates the Secret unless it is there, and returns it. Of two who try at once the first one's counts.
func (r *Runtime) ensureIdentity(ctx context.Context, ref provision.ClusterRef, spec provision.Spec) (*corev1.Secret, error) {
	present := &corev1.Secret{}
	err := r.options.Client.Get(ctx, key(ref, objectName(ref)), present)
	if !apierrors.IsNotFound(err) {
		return present, err
	}
	secret, err := newIdentity(r.options.Now(), ref, spec)
	if err != nil {
		return nil, err
	}
	if err := r.options.Client.Create(ctx, secret, client.FieldOwner(FieldOwner)); !apierrors.IsAlreadyExists(err) {
		return secret, err
	}
	return present, r.options.Client.Get(ctx, key(ref, objectName(ref)), present)
}

// Access implements the port.
func (r *Runtime) Access(ctx context.Context, ref provision.ClusterRef) (provision.Access, error) {
	f, err := r.look(ctx, ref)
	switch {
	case err != nil:
		return provision.Access{}, fmt.Errorf("reading the credentials of hosted cluster %s: %w", ref, err)
	case f.secret == nil || f.serving() == nil:
		return provision.Access{}, &provision.Problem{Reason: provision.ReasonOther, Message: "the cluster has no credentials yet"}
	}
	return accessOf(f), nil
}

// List implements the port. A cluster without a Secret is on its way out by itself, but a StatefulSet or a volume that lost its Secret is not.
func (r *Runtime) List(ctx context.Context) ([]provision.ClusterRef, error) {
	seen := map[types.UID]provision.ClusterRef{}
	for kind, list := range map[string]*metav1.PartialObjectMetadataList{
		"SecretList": {}, "StatefulSetList": {}, "PersistentVolumeClaimList": {},
	} {
		list.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind(kind))
		if kind == "StatefulSetList" {
			list.SetGroupVersionKind(appsv1.SchemeGroupVersion.WithKind(kind))
		}
		if err := r.options.Client.List(ctx, list, client.HasLabels{Label}); err != nil {
			return nil, fmt.Errorf("listing hosted clusters: %w", err)
		}
		for i := range list.Items {
			ref := refOf(&list.Items[i])
			if ref.Name != "" || seen[ref.UID].UID == "" {
				seen[ref.UID] = ref
			}
		}
	}
	refs := make([]provision.ClusterRef, 0, len(seen))
	for _, ref := range seen {
		refs = append(refs, ref)
	}
	return refs, nil
}

// refOf reads from an object whose it is.
func refOf(object client.Object) provision.ClusterRef {
	return provision.ClusterRef{
		Namespace: object.GetNamespace(), Name: object.GetAnnotations()[NameAnnotation], UID: types.UID(object.GetLabels()[Label]),
	}
}

// record remembers a refusal for the next observation, and forgets the one before when there is none. An error that may pass by itself is returned unchanged.
func (r *Runtime) record(ref provision.ClusterRef, what string, err error) error {
	problem := refusal(what, ref, err)
	r.mu.Lock()
	defer r.mu.Unlock()
	if err == nil {
		delete(r.failures, ref)
		return nil
	}
	if problem == nil {
		return fmt.Errorf("%s hosted cluster %s: %w", what, ref, err)
	}
	r.failures[ref] = failure{problem: *problem, count: r.failures[ref].count + 1, since: time.Now()}
	return problem
}
