// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package v1

import (
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
)

// ClaimSubject returns the entry of spec.subjects for a user, by the name that the API server knows the user by. A service account is one of its kind.
func ClaimSubject(user string) rbacv1.Subject {
	if account, is := strings.CutPrefix(user, "system:serviceaccount:"); is {
		if namespace, name, both := strings.Cut(account, ":"); both {
			return rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: name}
		}
	}
	return rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}
}
