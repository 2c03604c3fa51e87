// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeclient

import (
	"context"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// MostReviewed is in how many namespaces rights are asked for, to decide about buttons.
const MostReviewed = 10

// ButtonTime is how long a page waits for what the Kubernetes API says about its buttons.
const ButtonTime = 2 * time.Second

// Allowed asks the Kubernetes API whether it allows the person of a client something.
func Allowed(ctx context.Context, c client.Client, what authorizationv1.ResourceAttributes) (bool, error) {
	review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &what}}
	err := c.Create(ctx, review)
	return err == nil && review.Status.Allowed, err
}

// Rights says in which of some namespaces the person of a client is allowed something. An answer that is not there is no permission, and an API that is away is not asked again.
func Rights(ctx context.Context, c client.Client, what authorizationv1.ResourceAttributes, namespaces []string) map[string]bool {
	ctx, cancel := context.WithTimeout(ctx, ButtonTime)
	defer cancel()
	rights := map[string]bool{}
	for _, what.Namespace = range namespaces {
		if _, asked := rights[what.Namespace]; asked || len(rights) == MostReviewed {
			continue
		}
		may, err := Allowed(ctx, c, what)
		if err != nil {
			break
		}
		rights[what.Namespace] = may
	}
	return rights
}
