// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
)

// Departure is a node that leaves its cluster.
type Departure struct {
	NodeName string
	// TokenID is that of the bootstrap token that the node was made with.
	TokenID string
	// Since is when its release began: a Node that was made later is another host's.
	Since time.Time
	// DrainUntil is when pods that have not left are left behind.
	DrainUntil time.Time
}

// Depart carries on a departure at a time; what is done already is not done again. It is true when the cluster knows neither the Node nor its token any more; note says
// what was left behind. Before, pods are leaving: look again. PodDisruptionBudgets are respected until DrainUntil.
func (d Departure) Depart(ctx context.Context, cluster kubernetes.Interface, now time.Time) (gone bool, note string, err error) {
	asking, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	node, err := cluster.CoreV1().Nodes().Get(asking, d.NodeName, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
	case err != nil:
		return false, "", fmt.Errorf("reading Node %s: %w", d.NodeName, err)
	case node.CreationTimestamp.After(d.Since):
		note = fmt.Sprintf("The Node %s was made after the release began: it is another host's, and stays", d.NodeName)
	default:
		left, err := d.drain(asking, cluster, node)
		if err != nil {
			return false, "", err
		}
		if len(left) > 0 && now.Before(d.DrainUntil) {
			return false, "", nil
		}
		note = leftBehind(d.NodeName, left)
		if err := deleteNode(ctx, cluster, node); err != nil {
			return false, "", err
		}
	}
	return true, note, d.revoke(ctx, cluster)
}

func deleteNode(ctx context.Context, cluster kubernetes.Interface, node *corev1.Node) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	err := cluster.CoreV1().Nodes().Delete(ctx, node.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &node.UID}})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("deleting Node %s: %w", node.Name, err)
	}
	return nil
}

// leftBehind says which pods had not left.
func leftBehind(node string, pods []string) string {
	const named = 5
	if len(pods) == 0 {
		return ""
	}
	text := strings.Join(pods[:min(len(pods), named)], ", ")
	if more := len(pods) - named; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return fmt.Sprintf("Node %s was deleted although %d pods had not left it in time: %s", node, len(pods), text)
}

// drain keeps new pods away and evicts those that are there, as many as the context leaves time for. It returns those that have still to leave: on a Node that does not
// answer, those that were not allowed to. A cluster that answered some evictions answers, however slowly.
func (d Departure) drain(ctx context.Context, cluster kubernetes.Interface, node *corev1.Node) (left []string, err error) {
	if !node.Spec.Unschedulable {
		_, err := cluster.CoreV1().Nodes().Patch(ctx, node.Name, types.StrategicMergePatchType, []byte(`{"spec":{"unschedulable":true}}`), metav1.PatchOptions{})
		if err != nil {
			return nil, fmt.Errorf("cordoning Node %s: %w", node.Name, err)
		}
	}
	pods, err := cluster.CoreV1().Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("spec.nodeName", node.Name).String()})
	if err != nil {
		return nil, fmt.Errorf("listing the pods of Node %s: %w", node.Name, err)
	}
	answered := false
	for i := range pods.Items {
		pod := &pods.Items[i]
		if stays(pod) {
			continue
		}
		evicted := pod.DeletionTimestamp != nil
		if !evicted {
			err := evict(ctx, cluster, pod)
			if err != nil && ctx.Err() != nil && !answered {
				return nil, fmt.Errorf("evicting the pods of Node %s: %w", node.Name, err)
			}
			evicted = err == nil || apierrors.IsNotFound(err)
			answered = answered || ctx.Err() == nil
		}
		if !evicted || ready(node) {
			left = append(left, pod.Namespace+"/"+pod.Name)
		}
	}
	return left, nil
}

// evict asks once. The API server refuses an eviction for ten seconds at a time while a PodDisruptionBudget is not processed: a client that repeats it would spend the time of
// all other pods on it, and a cluster whose budgets stay unprocessed would count as one that does not answer.
func evict(ctx context.Context, cluster kubernetes.Interface, pod *corev1.Pod) error {
	eviction := &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name}}
	return cluster.PolicyV1().RESTClient().Post().AbsPath("/api/v1").Namespace(pod.Namespace).Resource("pods").Name(pod.Name).SubResource("eviction").
		MaxRetries(0).Body(eviction).Do(ctx).Error()
}

// stays is true for pods that are no part of a drain: they have ended, or belong to their node.
func stays(pod *corev1.Pod) bool {
	_, mirror := pod.Annotations[corev1.MirrorPodAnnotationKey]
	ended := pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
	return mirror || ended || slices.ContainsFunc(pod.OwnerReferences, func(o metav1.OwnerReference) bool {
		return o.Controller != nil && *o.Controller && o.Kind == "DaemonSet"
	})
}

// revoke deletes the bootstrap token and refuses what was asked for with it, or as the node, and is not decided.
func (d Departure) revoke(ctx context.Context, cluster kubernetes.Interface) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	err := cluster.CoreV1().Secrets(metav1.NamespaceSystem).Delete(ctx, secretName(d.TokenID), metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("deleting the bootstrap token of node %s: %w", d.NodeName, err)
	}
	requests, err := cluster.CertificatesV1().CertificateSigningRequests().List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("listing certificate requests: %w", err)
	}
	var errs []error
	for i := range requests.Items {
		request := &requests.Items[i]
		asked := request.Spec.Username
		if decided(request) || asked != bootstrapUser+d.TokenID && asked != nodeUser+d.NodeName {
			continue
		}
		request.Status.Conditions = append(request.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{
			Type: certificatesv1.CertificateDenied, Status: corev1.ConditionTrue, Reason: reason, Message: "the host of this node was released", LastUpdateTime: metav1.Now(),
		})
		_, err := cluster.CertificatesV1().CertificateSigningRequests().UpdateApproval(ctx, request.Name, request, metav1.UpdateOptions{})
		if err != nil && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
			errs = append(errs, fmt.Errorf("denying certificate request %s: %w", request.Name, err))
		}
	}
	return errors.Join(errs...)
}
