// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"fmt"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/fields"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	metal3v1 "github.com/muster-io/muster/apis/metal3/v1alpha1"
	"github.com/muster-io/muster/discovery-operator/internal/admission"
)

// cacheOptions keep in memory what decisions rest on: of the hosts everywhere what identifies them, of the Leases the
// reservations. Secrets are not cached at all.
func cacheOptions(namespace string) cache.Options {
	return cache.Options{
		DefaultTransform: slimOther,
		ByObject: map[client.Object]cache.ByObject{
			&metal3v1.BareMetalHost{}: {Transform: slim},
			&admissionregistrationv1.ValidatingWebhookConfiguration{}: {
				Field: fields.OneTermEqualSelector("metadata.name", admission.ConfigurationName),
			},
			&coordinationv1.Lease{}: {
				Namespaces: map[string]cache.Config{namespace: {LabelSelector: reservations()}},
			},
		},
	}
}

// slim takes out of a host what no decision looks at; the hardware is most of its size.
func slim(object any) (any, error) {
	host, ok := object.(*metal3v1.BareMetalHost)
	if !ok {
		return object, nil
	}
	host.ManagedFields = nil
	delete(host.Annotations, "kubectl.kubernetes.io/last-applied-configuration")
	if hw := host.Status.HardwareDetails; hw != nil {
		kept := &metal3v1.HardwareDetails{SystemVendor: metal3v1.HardwareSystemVendor{SerialNumber: hw.SystemVendor.SerialNumber}}
		for i := range hw.NIC {
			kept.NIC = append(kept.NIC, metal3v1.NIC{MAC: hw.NIC[i].MAC})
		}
		host.Status.HardwareDetails = kept
	}
	return host, nil
}

func wrap(err error, attempt string) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", attempt, err)
}
