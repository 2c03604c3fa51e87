// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package metrics_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	metal3v1 "github.com/muster-io/muster/apis/metal3/v1alpha1"
	"github.com/muster-io/muster/discovery-operator/internal/metrics"
)

func TestManagedHostsAreCountedByStateAndReason(t *testing.T) {
	scheme := runtime.NewScheme()
	require.NoError(t, metal3v1.AddToScheme(scheme))
	b := fake.NewClientBuilder().WithScheme(scheme)
	for i, reason := range []string{"Available", "Available", metal3v1.ReasonBMCCredentialsRefused, ""} {
		h := &metal3v1.BareMetalHost{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: fmt.Sprint("h", i)}}
		h.Status.Provisioning.State = metal3v1.StateAvailable
		if reason != "" { // the last one is another operator's
			h.Status.Conditions = []metav1.Condition{
				{Type: metal3v1.ConditionHandedOver, Reason: metal3v1.ReasonManagedHere}, {Type: metal3v1.ConditionReady, Reason: reason},
			}
		}
		if reason == metal3v1.ReasonBMCCredentialsRefused {
			h.Status.Provisioning.State = metal3v1.StateRegistering
		}
		b.WithObjects(h)
	}
	require.NoError(t, testutil.CollectAndCompare(metrics.NewHosts(b.Build()), strings.NewReader(`
# HELP discovery_operator_managed_hosts Hosts that this operator manages, by state and by the reason of their condition Ready.
# TYPE discovery_operator_managed_hosts gauge
discovery_operator_managed_hosts{reason="Available",state="available"} 2
discovery_operator_managed_hosts{reason="BMCCredentialsRefused",state="registering"} 1
`)))
}
