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
	// Unjoined says that the host was not known to have become that Node: unless the cluster knows otherwise, it is another machine's.
	Unjoined bool
}

// Depart carries on a departure at a time; what is done already is not done again. It is true when the cluster knows neither the Node nor its token any more; note says
// what was left behind. Before, pods are leaving: look again. PodDisruptionBudgets are respected until DrainUntil.
func (d Departure) Depart(ctx context.Context, cluster kubernetes.Interface, now time.Time) (gone bool, note string, err error) {
	asking, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	node, err := cluster.CoreV1().Nodes().Get(asking, d.NodeName, metav1.GetOptions{})
	foreign := false
	if err == nil && d.Unjoined {
		foreign, err = d.foreign(asking, cluster)
	}
	switch {
	case apierrors.IsNotFound(err):
	case err != nil:
		return false, "", fmt.Errorf("reading Node %s: %w", d.NodeName, err)
	case foreign:
		note = fmt.Sprintf("The Node %s stays: the host got no certificate for it, so it is another machine's", d.NodeName)
	case node.CreationTimestamp.After(d.Since):
		note = fmt.Sprintf("The Node %s was made after the release began: it is another host's, and stays", d.NodeName)
	default:
		left, err := d.drain(asking, cluster, node)
		if err != nil {
			return false, "", err
		}
		if (left.number > 0 || left.more) && now.Before(d.DrainUntil) {
			return false, "", nil
		}
		note = left.behind(d.NodeName)
		if err := deleteNode(ctx, cluster, node); err != nil {
			return false, "", err
		}
	}
	return true, note, d.revoke(ctx, cluster)
}

// foreign says that no certificate was approved for the host: the cluster keeps requests for an hour, and the service notes them sooner.
func (d Departure) foreign(ctx context.Context, cluster kubernetes.Interface) (bool, error) {
	own := false
	err := eachRequest(ctx, cluster, func(_ context.Context, request *certificatesv1.CertificateSigningRequest) {
		own = own || approvedFor(request, d.TokenID)
	})
	return !own, err
}

// eachRequest hands over the certificate requests of the cluster, page by page.
func eachRequest(ctx context.Context, cluster kubernetes.Interface, do func(ctx context.Context, request *certificatesv1.CertificateSigningRequest)) error {
	return eachPage(ctx, metav1.ListOptions{}, func(ctx context.Context, options metav1.ListOptions) (next string, err error) {
		page, err := cluster.CertificatesV1().CertificateSigningRequests().List(ctx, options)
		if err != nil {
			return "", fmt.Errorf("listing certificate requests: %w", err)
		}
		for i := range page.Items {
			do(ctx, &page.Items[i])
		}
		return page.Continue, nil
	})
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

// pods are those that have still to leave a Node.
type pods struct {
	number int
	// some of their names.
	some []string
	// more says that there are others, which there was no time to look at.
	more bool
}

func (p *pods) add(pod *corev1.Pod) {
	const named = 5
	p.number++
	if len(p.some) < named {
		p.some = append(p.some, pod.Namespace+"/"+pod.Name)
	}
}

// behind says which pods had not left.
func (p *pods) behind(node string) string {
	if p.number == 0 && !p.more {
		return ""
	}
	text, least := "", ""
	if len(p.some) > 0 {
		text = ": " + strings.Join(p.some, ", ")
	}
	if more := p.number - len(p.some); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	if p.more {
		least = "at least "
	}
	return fmt.Sprintf("Node %s was deleted although %s%d pods had not left it in time%s", node, least, p.number, text)
}

// drain keeps new pods away and evicts those that are there, as many as the context leaves time for. It returns those that have still to leave: on a Node that does not
// answer, those that were not allowed to. A cluster that answered some evictions answers, however slowly.
func (d Departure) drain(ctx context.Context, cluster kubernetes.Interface, node *corev1.Node) (left pods, err error) {
	if !node.Spec.Unschedulable {
		_, err := cluster.CoreV1().Nodes().Patch(ctx, node.Name, types.StrategicMergePatchType, []byte(`{"spec":{"unschedulable":true}}`), metav1.PatchOptions{})
		if err != nil {
			return left, fmt.Errorf("cordoning Node %s: %w", node.Name, err)
		}
	}
	answered := false
	ofNode := metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("spec.nodeName", node.Name).String()}
	err = eachPage(ctx, ofNode, func(ctx context.Context, options metav1.ListOptions) (next string, err error) {
		page, err := cluster.CoreV1().Pods(metav1.NamespaceAll).List(ctx, options)
		if err != nil && ctx.Err() != nil && answered {
			left.more = true // the next pass begins anew
			return "", nil
		}
		if err != nil {
			return "", fmt.Errorf("listing the pods of Node %s: %w", node.Name, err)
		}
		for i := range page.Items {
			pod := &page.Items[i]
			if stays(pod) {
				continue
			}
			evicted := pod.DeletionTimestamp != nil
			if !evicted {
				err := evict(ctx, cluster, pod)
				if err != nil && ctx.Err() != nil && !answered {
					return "", fmt.Errorf("evicting the pods of Node %s: %w", node.Name, err)
				}
				evicted = err == nil || apierrors.IsNotFound(err)
				answered = answered || ctx.Err() == nil
			}
			if !evicted || ready(node) {
				left.add(pod)
			}
		}
		return page.Continue, nil
	})
	return left, err
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
	var errs []error
	err = eachRequest(ctx, cluster, func(ctx context.Context, request *certificatesv1.CertificateSigningRequest) {
		if err := d.deny(ctx, cluster, request); err != nil && len(errs) < pageSize {
			errs = append(errs, err)
		}
	})
	return errors.Join(append(errs, err)...)
}

// deny refuses a certificate request of the node that is not decided.
func (d Departure) deny(ctx context.Context, cluster kubernetes.Interface, request *certificatesv1.CertificateSigningRequest) error {
	asked := request.Spec.Username
	if decided(request) || asked != bootstrapUser+d.TokenID && (d.Unjoined || asked != nodeUser+d.NodeName) {
		return nil
	}
	request.Status.Conditions = append(request.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{
		Type: certificatesv1.CertificateDenied, Status: corev1.ConditionTrue, Reason: reason, Message: "the host of this node was released", LastUpdateTime: metav1.Now(),
	})
	_, err := cluster.CertificatesV1().CertificateSigningRequests().UpdateApproval(ctx, request.Name, request, metav1.UpdateOptions{})
	if err != nil && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
		return fmt.Errorf("denying certificate request %s: %w", request.Name, err)
	}
	return nil
}
