// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package webhookcert

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
)

// TestTwoWritersOfAWebhookDoNotRace: each of two operators of one name, or an operator and a GitOps tool, is woken by what the other one writes.
func TestTwoWritersOfAWebhookDoNotRace(t *testing.T) {
	synctest.Test(t, twoWritersOfAWebhook) // no time passes but what they wait for
}

func twoWritersOfAWebhook(t *testing.T) {
	webhook := &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "hosts"}, Webhooks: []admissionregistrationv1.ValidatingWebhook{{Name: "hosts.example.com"}}}
	c := fake.NewClientBuilder().WithScheme(scheme.Scheme).WithObjects(webhook).Build()
	rotator := func(namespace string) *CertRotator {
		return &CertRotator{Live: c, Target: ValidatingWebhook{ConfigurationName: "hosts", WebhookPath: "/validate"}, Namespace: namespace, Name: "webhook"}
	}
	one, other := rotator("one"), rotator("other")
	request := ctrl.Request{NamespacedName: client.ObjectKeyFromObject(webhook)}
	leadsTo := func() string {
		require.NoError(t, c.Get(t.Context(), request.NamespacedName, webhook))
		return webhook.Webhooks[0].ClientConfig.Service.Namespace
	}
	pass := func(of *CertRotator) time.Duration {
		result, err := of.Reconcile(t.Context(), request)
		require.NoError(t, err)
		return result.RequeueAfter
	}
	pass(one)
	pass(other)
	assert.Equal(t, "other", leadsTo(), "the first write is at once")
	writes := 0
	for range 100 {
		before := leadsTo()
		assert.LessOrEqual(t, pass(one), longestPause)
		pass(other)
		if leadsTo() != before {
			writes++
		}
	}
	assert.Less(t, writes, 3, "they wait for longer each time")

	one.written.last = one.written.last.Add(-longestPause)
	pass(one)
	assert.Equal(t, "one", leadsTo(), "it is not left to the other one")
	other.written.last = other.written.last.Add(-2 * settled)
	pass(other)
	assert.Equal(t, "other", leadsTo())
	assert.Equal(t, 1, other.written.writes, "what stayed for long is not disputed")
}
