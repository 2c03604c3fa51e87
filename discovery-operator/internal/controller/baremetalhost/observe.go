// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package baremetalhost

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	metal3v1 "github.com/muster-io/muster/apis/metal3/v1alpha1"
	"github.com/muster-io/muster/discovery-operator/internal/hoststate"
)

// observe reads what a pass begins with.
func (r *Reconciler) observe(ctx context.Context, host *metal3v1.BareMetalHost) (hoststate.Snapshot, *attempt, error) {
	s := hoststate.Snapshot{
		Host: host, Facts: hoststate.FactsOf(host), State: hoststate.Of(host.Status.Provisioning.State), NodeID: host.Status.Provisioning.ID,
		Good: host.Status.GoodCredentials,
	}
	if s.Facts.PowerControl {
		var secret corev1.Secret
		key := types.NamespacedName{Namespace: host.Namespace, Name: host.Spec.BMC.CredentialsName}
		switch err := r.Live.Get(ctx, key, &secret); {
		case err == nil:
			s.Secret = hoststate.Secret{
				Found: true, Version: secret.ResourceVersion, Username: credential(&secret, "username"), Password: credential(&secret, "password"),
			}
		case !apierrors.IsNotFound(err):
			return s, nil, wrap(err, "looking for the credentials of host %s", client.ObjectKeyFromObject(host))
		}
		s.Facts.Unverified = s.Good.Reference == nil || s.Good.Reference.Name != key.Name || s.Secret.Found && s.Good.Version != s.Secret.Version
	}
	about := fmt.Sprint(host.UID, host.Generation, s.Secret.Version, s.Facts.Deleting, host.Annotations[metal3v1.KeepNodeAnnotation],
		host.InspectionRequested(), host.InspectionDisabled(), s.Facts.Detached)
	a := r.attempts.of(client.ObjectKeyFromObject(host), about, s.State)
	s.Memory = a.memory
	s.Facts.Resting = r.Now().Before(a.memory.NotBefore)
	return s, a, nil
}

// credential is what a Secret has under a key, without the white space around it: many write the values with "echo … | base64", which adds a line feed that no
// management controller accepts.
func credential(secret *corev1.Secret, key string) string {
	return strings.TrimSpace(string(secret.Data[key]))
}
