// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-io/muster/pool-operator/internal/provision"
	"github.com/muster-io/muster/pool-operator/internal/writecheck"
)

// found is what there is of a cluster; what is not there is nil.
type found struct {
	secret *corev1.Secret
	set    *appsv1.StatefulSet
	pod    *corev1.Pod
	volume *corev1.PersistentVolumeClaim
	// served is the Secret with what is renewed.
	served  *corev1.Secret
	service *corev1.Service
	// route is the TLSRoute; it is read only where there is a Gateway.
	route  *unstructured.Unstructured
	policy *networkingv1.NetworkPolicy
	// refused is what the StatefulSet last said of a pod that it could not create; empty where there is a pod.
	refused string
}

// Observe implements the port.
func (r *Runtime) Observe(ctx context.Context, ref provision.ClusterRef) (provision.Observation, error) {
	f, err := r.look(ctx, ref)
	if err != nil {
		return provision.Observation{}, fmt.Errorf("looking for hosted cluster %s: %w", ref, err)
	}
	o := f.judge()
	o.Superseded = o.State == provision.StateStarting && isOfPrograms(o.Problem) && f.images() != r.options.Images.String()
	f.judgeWait(r.options.Now(), ref, &o)
	f.judgeVolume(ref, &o)
	r.judgeAccess(ref, f, &o)
	if o.State == provision.StateReady {
		r.check(ctx, ref, f, &o)
		o.Outdated = o.Outdated || o.State == provision.StateReady && f.unrecorded()
	}
	r.overlay(ref, &o)
	return o, nil
}

// look reads all objects of a cluster, without a cache.
func (r *Runtime) look(ctx context.Context, ref provision.ClusterRef) (found, error) {
	var f found
	var err error
	if f.secret, err = read(ctx, r.options.Client, ref, objectName(ref), &corev1.Secret{}); err != nil {
		return f, err
	}
	if f.set, err = read(ctx, r.options.Client, ref, objectName(ref), &appsv1.StatefulSet{}); err != nil {
		return f, err
	}
	if f.pod, err = read(ctx, r.options.Client, ref, podName(ref), &corev1.Pod{}); err != nil {
		return f, err
	}
	if f.served, err = read(ctx, r.options.Client, ref, ref.ServingName(), &corev1.Secret{}); err != nil {
		return f, err
	}
	if f.service, err = read(ctx, r.options.Client, ref, objectName(ref), &corev1.Service{}); err != nil {
		return f, err
	}
	if f.policy, err = read(ctx, r.options.Client, ref, objectName(ref), &networkingv1.NetworkPolicy{}); err != nil {
		return f, err
	}
	if f.wanted() && f.pod == nil {
		if f.refused, err = r.refusedPod(ctx, f.set); err != nil {
			return f, err
		}
	}
	if r.options.Expose == ExposeGateway && f.service != nil {
		if f.route, err = r.routed(ctx, ref); err != nil {
			return f, err
		}
	}
	f.volume, err = read(ctx, r.options.Client, ref, volumeName(ref), &corev1.PersistentVolumeClaim{})
	return f, err
}

// retryOfPod is longer than the controller of StatefulSets waits before it tries again to create a pod, about 17 minutes at most.
const retryOfPod = 20 * time.Minute

// refusedPod is the message of the last Event that a pod could not be created, as where a quota or an admission refuses it: nothing else says so. It is empty before the controller of
// StatefulSets has looked at the StatefulSet as it is, and where Events may not be read.
func (r *Runtime) refusedPod(ctx context.Context, set *appsv1.StatefulSet) (string, error) {
	if set.Status.ObservedGeneration < set.Generation {
		return "", nil
	}
	events := &corev1.EventList{}
	err := r.options.Client.List(ctx, events, client.InNamespace(set.Namespace), client.MatchingFields{"involvedObject.uid": string(set.UID), "reason": "FailedCreate"})
	if apierrors.IsForbidden(err) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("reading the Events of StatefulSet %s/%s: %w", set.Namespace, set.Name, err)
	}
	var last time.Time
	message := ""
	for i := range events.Items {
		event := &events.Items[i]
		at := event.LastTimestamp.Time
		if at.IsZero() {
			at = event.EventTime.Time
		}
		if at.After(last) && r.options.Now().Sub(at) < retryOfPod {
			last, message = at, event.Message
		}
	}
	return message, nil
}

// read returns nil for what is not there, or belongs to a namesake whose UID begins alike.
func read[T client.Object](ctx context.Context, c client.Client, ref provision.ClusterRef, name string, into T) (T, error) {
	var none T
	if err := c.Get(ctx, key(ref, name), into); err != nil {
		return none, client.IgnoreNotFound(err)
	}
	if into.GetLabels()[Label] != string(ref.UID) {
		return none, nil
	}
	return into, nil
}

// judge says what the objects mean, before the cluster itself is asked.
func (f found) judge() provision.Observation {
	switch {
	case f.secret == nil && f.set == nil && f.pod == nil && f.volume == nil && !f.policyGoes():
		return provision.Observation{State: provision.StateAbsent}
	case f.secret == nil && f.set != nil && f.set.DeletionTimestamp == nil:
		return provision.Observation{State: provision.StateFailed, Problem: &provision.Problem{
			Reason: provision.ReasonDataDamaged, Message: "the Secret with the keys of the cluster was deleted: " + f.set.Name}}
	case f.secret == nil && f.set == nil && f.pod == nil && f.volume != nil && f.volume.DeletionTimestamp == nil: // Delete leaves no volume without its Secret
		return provision.Observation{State: provision.StateFailed, Problem: &provision.Problem{
			Reason: provision.ReasonDataDamaged, Message: "the Secret with the keys of the cluster was deleted, and the volume claim " + f.volume.Name + " is left"}}
	case f.secret == nil && f.set == nil && isAlone(f.pod):
		return provision.Observation{State: provision.StateFailed, Problem: &provision.Problem{
			Reason: provision.ReasonDataDamaged, Message: "the Secret with the keys of the cluster was deleted, and the pod " + f.pod.Name + " is left"}}
	case f.secret == nil:
		return provision.Observation{State: provision.StateDeleting}
	}
	o := provision.Observation{ID: string(f.secret.Data[idKey]), Started: f.wanted()}
	switch {
	case f.wanted() && f.pod != nil && f.pod.DeletionTimestamp == nil:
		f.judgePod(&o)
	case f.wanted():
		o.State, o.Since = provision.StateStarting, f.set.CreationTimestamp.Time
		if f.refused != "" {
			o.Problem = &provision.Problem{Reason: provision.ReasonRefused, Message: "the pod of the cluster is not created: " + f.refused}
		}
	case f.set == nil && isAlone(f.pod):
		o.State = provision.StateFailed
		o.Problem = &provision.Problem{Reason: provision.ReasonOther, Message: "the StatefulSet of the cluster was deleted without its pod " + f.pod.Name}
	case f.pod != nil:
		o.State = provision.StateStopping
	default:
		o.State = provision.StateStopped
	}
	return o
}

// isAlone says whether a pod runs that no StatefulSet owns, as after kubectl delete statefulset --cascade=orphan. No controller ends it. A StatefulSet that is made again adopts it.
func isAlone(pod *corev1.Pod) bool {
	return pod != nil && pod.DeletionTimestamp == nil && metav1.GetControllerOf(pod) == nil
}

// images are those that the cluster was started with, in one line.
func (f found) images() string {
	if recorded := f.set.Annotations[imagesAnnotation]; recorded != "" {
		return recorded
	}
	return imagesOf(f.set).String()
}

// wanted says whether the cluster is meant to run.
func (f found) wanted() bool {
	return f.set != nil && f.set.DeletionTimestamp == nil && (f.set.Spec.Replicas == nil || *f.set.Spec.Replicas > 0)
}

// judgePod says how far the pod is. A ready pod is asked itself; what is in the way of one that is not ready is on it, and its kubelet tries on.
func (f found) judgePod(o *provision.Observation) {
	o.State, o.Since = provision.StateStarting, f.pod.CreationTimestamp.Time
	for _, c := range f.pod.Status.Conditions {
		if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue {
			o.State, o.Since = provision.StateReady, c.LastTransitionTime.Time
			return
		}
	}
	o.Problem, o.Failures = obstacle(f.pod)
}

// overdue is how long after its grace period a pod that is being deleted is held to be stuck.
const overdue = time.Minute

// waitingFailures are those of a cluster whose pod does not end: as many as make the caller look again with the longest pause. There is nothing to do again.
const waitingFailures = 7

// judgeWait says what a cluster waits for that no object of it says: a pod that is not admitted, of which only the controller of StatefulSets is told why, or one that does not end.
func (f found) judgeWait(now time.Time, ref provision.ClusterRef, o *provision.Observation) {
	if o.Problem != nil {
		return
	}
	switch o.State {
	case provision.StateStarting, provision.StateStopping, provision.StateDeleting:
	case provision.StateAbsent, provision.StateStopped, provision.StateReady, provision.StateUnreachable, provision.StateFailed:
		return
	}
	switch {
	case f.pod == nil && f.wanted() && f.set.Status.ObservedGeneration == f.set.Generation && f.set.Status.Replicas == 0:
		o.Problem = &provision.Problem{Reason: provision.ReasonRefused,
			Message: "the StatefulSet " + objectName(ref) + " has no pod: a quota or an admission policy refuses it or its volume, as the events of the StatefulSet say"}
	case f.pod != nil && f.pod.DeletionTimestamp != nil && now.After(f.pod.DeletionTimestamp.Add(overdue)):
		o.Problem = &provision.Problem{Reason: provision.ReasonOther,
			Message: fmt.Sprintf("the pod %s is being deleted and does not end on node %q; when that node is lost, delete its Node", f.pod.Name, f.pod.Spec.NodeName)}
		if o.State != provision.StateStarting {
			o.Since, o.Failures = now, waitingFailures
		}
	}
}

// judgeVolume says that the volume of a cluster that has its identity is gone, or empty, or goes with its pod. The controller of StatefulSets makes another one, which is empty, for the next pod.
func (f found) judgeVolume(ref provision.ClusterRef, o *provision.Observation) {
	deleted := f.volume == nil || f.volume.DeletionTimestamp != nil
	switch {
	case f.secret == nil:
	case f.pod == nil && deleted:
		o.DataMissing = fmt.Sprintf("The volume claim %s with the label %s=%s, which had the data of the cluster, was deleted.", volumeName(ref), Label, ref.UID)
	case f.pod != nil && o.State == provision.StateStarting && isRefused(f.pod):
		o.DataMissing = fmt.Sprintf("The volume claim %s with the label %s=%s has no data of the cluster: the one that had it was deleted, or emptied.", volumeName(ref), Label, ref.UID)
		o.DataRefused = true
	case f.pod != nil && f.volume != nil && deleted && f.wanted():
		o.DataAtRisk = fmt.Sprintf("The volume claim %s was deleted. It goes, and the data of the cluster with it, when the pod %s ends: set persistentVolumeReclaimPolicy of its PersistentVolume %sto Retain.",
			f.volume.Name, f.pod.Name, spaced(f.volume.Spec.VolumeName))
	}
}

// spaced is a word and the space after it; empty for none.
func spaced(word string) string {
	if word == "" {
		return ""
	}
	return word + " "
}

// checkTimeout bounds the question to the cluster.
const checkTimeout = 3 * time.Second

// judgeAccess says where the cluster is reached, with which credentials, and whether both are what they should be.
func (r *Runtime) judgeAccess(ref provision.ClusterRef, f found, o *provision.Observation) {
	if serving := f.serving(); serving != nil && f.secret != nil {
		o.URL, o.AccessID = string(serving.Data[urlKey]), accessOf(f).ID()
	}
	o.Outdated = f.secret != nil && f.wanted() && (!f.isolated(ref) || f.scaled() || f.deletesVolume() || f.unguarded() || !f.leads(ref))
	if f.service == nil || f.secret == nil || legacy(f.secret) {
		return
	}
	o.Outdated = o.Outdated || f.wanted() && !r.options.exposed(ref, f)
	address, err := r.options.address(ref, f)
	if err == nil {
		o.Outdated = o.Outdated || r.outdated(f, address)
		return
	}
	if errors.Is(err, errNoAddress) && o.State == provision.StateStarting && f.served == nil {
		o.Problem = &provision.Problem{Reason: provision.ReasonAddressPending, Message: "the Service " + f.service.Name + " has got no address from a load balancer yet"}
	}
}

// isolated says whether the network policy of the cluster is there and as it was made: policies of a namespace add up, so that a rule more is a way in.
func (f found) isolated(ref provision.ClusterRef) bool {
	return f.policy != nil && equality.Semantic.DeepEqual(f.policy.Spec, isolation(ref))
}

// policyGoes says whether the network policy is there until pods are gone that it belongs to.
func (f found) policyGoes() bool { return f.policy != nil && len(f.policy.OwnerReferences) > 0 }

// scaled says whether another client asked for more pods than one. Each has an etcd of its own.
func (f found) scaled() bool {
	return f.set != nil && f.set.DeletionTimestamp == nil && f.set.Spec.Replicas != nil && *f.set.Spec.Replicas > 1
}

// deletesVolume says whether the volume claim goes with the StatefulSet, as it did before Delete alone deleted it.
func (f found) deletesVolume() bool {
	if f.set == nil {
		return false
	}
	policy := f.set.Spec.PersistentVolumeClaimRetentionPolicy
	return policy != nil && policy.WhenDeleted == appsv1.DeletePersistentVolumeClaimRetentionPolicyType
}

// unguarded says whether etcd begins with nothing where its volume is empty, as it did before a Secret kept it from that.
func (f found) unguarded() bool {
	if f.secret == nil || legacy(f.secret) || f.set == nil {
		return false
	}
	container := etcdOf(&f.set.Spec.Template.Spec)
	return container != nil && !slices.ContainsFunc(container.Env, func(v corev1.EnvVar) bool { return v.Name == stateVariable })
}

// etcdOf is the container of etcd; nil where there is none.
func etcdOf(spec *corev1.PodSpec) *corev1.Container {
	for i := range spec.InitContainers {
		if spec.InitContainers[i].Name == etcd {
			return &spec.InitContainers[i]
		}
	}
	return nil
}

// leads says whether the Service is there, selects the pod of the cluster and no other, and leads to its port.
func (f found) leads(ref provision.ClusterRef) bool {
	return f.service != nil && maps.Equal(f.service.Spec.Selector, selector(ref)) && hasPort(f.service)
}

// accessOf returns the administrator's credentials.
func accessOf(f found) provision.Access {
	return provision.Access{Kubeconfig: f.serving().Data[kubeconfigKey], Password: string(f.secret.Data[passwordKey])}
}

// check asks the cluster itself, through its Service.
func (r *Runtime) check(ctx context.Context, ref provision.ClusterRef, f found, o *provision.Observation) {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	version, full, err := r.ask(ctx, ref, f)
	if err == nil {
		o.Version = version
		if full {
			o.Problem = provision.StorageFull("in the pod "+f.pod.Name, runPath+"/etcd.sock")
		}
		return
	}
	o.State = provision.StateUnreachable
	o.Problem = &provision.Problem{Reason: provision.ReasonNotAnswering, Component: apiServer,
		Message: fmt.Sprintf("kube-apiserver runs but is not ready: %v", err)}
}

// ask returns the version of a cluster that is ready, and whether its etcd refuses writes.
func (r *Runtime) ask(ctx context.Context, ref provision.ClusterRef, f found) (version string, full bool, err error) {
	serving := f.serving()
	if serving == nil {
		return "", false, errors.New("it has no certificate")
	}
	config := &rest.Config{
		Host: serviceURL(ref), Dial: r.options.Dial, Timeout: checkTimeout,
		TLSClientConfig: rest.TLSClientConfig{CAData: f.secret.Data["ca.crt"], CertData: serving.Data["admin.crt"], KeyData: serving.Data["admin.key"]},
	}
	client, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return "", false, err
	}
	if err := client.RESTClient().Get().AbsPath("/readyz").Do(ctx).Error(); err != nil {
		return "", false, err
	}
	info, err := client.ServerVersion()
	if err != nil {
		return "", false, err
	}
	// An error, too, has the answer.
	answer, _ := client.RESTClient().Post().AbsPath(writecheck.Path).SetHeader("Content-Type", "application/json").Body([]byte(writecheck.Body)).Do(ctx).Raw()
	return info.GitVersion, writecheck.Full(answer), nil
}

// overlay adds what the API server refused to do, which leaves no trace on any object.
func (r *Runtime) overlay(ref provision.ClusterRef, o *provision.Observation) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f, refused := r.failures[ref]
	if !refused {
		return
	}
	switch o.State {
	case provision.StateReady, provision.StateStarting, provision.StateUnreachable, provision.StateFailed:
		return
	case provision.StateStopped:
		o.State = provision.StateFailed
	case provision.StateAbsent, provision.StateStopping, provision.StateDeleting:
	}
	o.Problem, o.Failures, o.Since = &f.problem, f.count, f.since
}
