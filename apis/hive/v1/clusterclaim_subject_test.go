// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package v1

import (
	"testing"

	"github.com/stretchr/testify/assert"
	rbacv1 "k8s.io/api/rbac/v1"
)

func TestClaimSubject(t *testing.T) {
	for given, c := range map[string]struct {
		user string
		want rbacv1.Subject
	}{
		"a person":                              {"jane", rbacv1.Subject{APIGroup: "rbac.authorization.k8s.io", Kind: "User", Name: "jane"}},
		"a service account":                     {"system:serviceaccount:ns:builder", rbacv1.Subject{Kind: "ServiceAccount", Namespace: "ns", Name: "builder"}},
		"half of the name of a service account": {"system:serviceaccount:ns", rbacv1.Subject{APIGroup: "rbac.authorization.k8s.io", Kind: "User", Name: "system:serviceaccount:ns"}},
	} {
		t.Run(given, func(t *testing.T) { assert.Equal(t, c.want, ClaimSubject(c.user)) })
	}
}
