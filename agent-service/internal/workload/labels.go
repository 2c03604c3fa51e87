// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
)

// labelsOf is the item of the queue that stands for labels of nodes; no certificate request has that name.
const labelsOf = "/labels"

// label gives Nodes the labels that their kubelets may not set, and takes care that they keep them.
func (w *Watcher) label(ctx context.Context) error {
	var errs []error
	for _, machine := range w.expected() {
		if len(machine.Labels) == 0 {
			continue
		}
		node, err := w.nodes.Get(machine.NodeName)
		if err != nil || labelled(node, machine.Labels) || !w.owns(machine) {
			continue // it is there later, or it is another host's
		}
		patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": node.UID, "labels": machine.Labels}})
		if err != nil {
			return fmt.Errorf("encoding the labels of Node %s: %w", node.Name, err)
		}
		_, err = w.cluster.CoreV1().Nodes().Patch(ctx, node.Name, types.MergePatchType, patch, metav1.PatchOptions{})
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			errs = append(errs, fmt.Errorf("labelling Node %s: %w", node.Name, err))
		}
	}
	return errors.Join(errs...)
}

func labelled(node *corev1.Node, with map[string]string) bool {
	for key, value := range with {
		if has, ok := node.Labels[key]; !ok || has != value {
			return false
		}
	}
	return true
}

// owns says that the Node of a machine's name is the machine's: a certificate for it was approved. Another machine may have been the Node of that name before.
func (w *Watcher) owns(machine Machine) bool {
	if machine.Joined {
		return true
	}
	requests, err := w.requests.List(labels.Everything())
	return err == nil && slices.ContainsFunc(requests, func(r *certificatesv1.CertificateSigningRequest) bool { return approvedFor(r, machine.TokenID) })
}

// approvedFor is true for a request that was made with a bootstrap token, and was approved.
func approvedFor(request *certificatesv1.CertificateSigningRequest, tokenID string) bool {
	return request.Spec.Username == bootstrapUser+tokenID && slices.ContainsFunc(request.Status.Conditions, func(c certificatesv1.CertificateSigningRequestCondition) bool {
		return c.Type == certificatesv1.CertificateApproved
	})
}
