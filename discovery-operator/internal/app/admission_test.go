// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	metal3v1 "github.com/muster-io/muster/apis/metal3/v1alpha1"
	"github.com/muster-io/muster/apis/porttest"
	"github.com/muster-io/muster/discovery-operator/internal/admission"
	"github.com/muster-io/muster/discovery-operator/internal/demo"
)

// checked makes the API server ask the check of this test, as the deployment does.
func (w *world) checked(config admissionregistrationv1.WebhookClientConfig) {
	w.Helper()
	data, err := os.ReadFile(filepath.Join("..", "..", "..", "deploy", "components", "discovery-admission", "webhook.yaml"))
	require.NoError(w, err)
	hook := &admissionregistrationv1.ValidatingWebhookConfiguration{}
	require.NoError(w, yaml.UnmarshalStrict(data, hook))
	hook.Webhooks[0].ClientConfig = config
	hook.Webhooks[0].NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"kubernetes.io/metadata.name": w.ns}}
	if config.CABundle != nil { // the operator would take one of the usual name over
		hook.Name = w.system
	}
	require.NoError(w, w.Create(w.Context(), hook))
	w.Cleanup(func() { _ = w.Delete(context.Background(), hook) })
}

// refusesTwins creates hosts until the check answers, and checks what it says.
func (w *world) refusesTwins() {
	w.Helper()
	host := func(name, mac string) *metal3v1.BareMetalHost {
		h := &metal3v1.BareMetalHost{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: name}}
		h.Spec = metal3v1.BareMetalHostSpec{Online: true, BootMACAddress: mac, AutomatedCleaningMode: "metadata"}
		return h
	}
	require.NoError(w, w.Create(w.Context(), host("first", demo.MAC(1, 0))))
	var err error
	w.eventually("the second is refused", func() bool {
		err = w.Create(w.Context(), host("second", strings.ToUpper(demo.MAC(1, 0))))
		if err == nil {
			assert.NoError(w, w.Delete(w.Context(), host("second", "")))
		}
		return err != nil
	})
	assert.True(w, apierrors.IsForbidden(err))
	require.ErrorContains(w, err, w.ns+"/first")
	other := host("other", demo.MAC(2, 0))
	require.NoError(w, w.Create(w.Context(), other))
	w.patch(other, `{"spec":{"online":false}}`)
	require.NoError(w, w.Create(w.Context(), host("without", "")), "hosts without boot MAC do not share one")
}

func TestASecondHostOfABootMACIsRefused(t *testing.T) {
	w := newWorld(t)
	dir, ca := certificate(t)
	address := "127.0.0.1:" + porttest.Free(t)
	w.operate(func(o *Options) { o.WebhookBindAddress, o.WebhookCertDir = address, dir })
	w.checked(admissionregistrationv1.WebhookClientConfig{URL: new("https://" + address + admission.Path), CABundle: ca})
	w.refusesTwins()
}

// TestTheCheckKeepsItsOwnCertificate lets two replicas make one certificate and tell the API server of it, and again when somebody
// takes it away.
func TestTheCheckKeepsItsOwnCertificate(t *testing.T) {
	w := newWorld(t)
	address := "127.0.0.1:" + porttest.Free(t)
	for i, bind := range []string{address, "127.0.0.1:" + porttest.Free(t)} {
		w.operate(func(o *Options) {
			o.WebhookBindAddress, o.WebhookURL = bind, "https://"+address
			o.LeaderElect = i > 0
		})
	}
	w.checked(admissionregistrationv1.WebhookClientConfig{URL: new("https://127.0.0.1:1/")})
	w.refusesTwins()

	key := types.NamespacedName{Namespace: w.system, Name: admission.SecretName}
	var before, after corev1.Secret
	require.NoError(t, w.Get(t.Context(), key, &before))
	require.NoError(t, w.Delete(t.Context(), &before))
	var hook admissionregistrationv1.ValidatingWebhookConfiguration
	require.NoError(t, w.Get(t.Context(), types.NamespacedName{Name: admission.ConfigurationName}, &hook))
	w.patch(&hook, `{"metadata":{"annotations":{"touched":"true"}}}`)
	w.eventually("there is another certificate, and the API server knows it", func() bool {
		if w.Get(t.Context(), key, &after) != nil || w.Get(t.Context(), client.ObjectKeyFromObject(&hook), &hook) != nil {
			return false
		}
		return bytes.Equal(hook.Webhooks[0].ClientConfig.CABundle, after.Data["ca.crt"])
	})
	assert.NotEqual(t, before.Data["tls.crt"], after.Data["tls.crt"])
}

// certificate makes a certificate for 127.0.0.1 that is its own authority.
func certificate(t *testing.T) (dir string, ca []byte) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	require.NoError(t, err)
	private, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(t, err)
	dir = t.TempDir()
	ca = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	require.NoError(t, os.WriteFile(filepath.Join(dir, "tls.crt"), ca, 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "tls.key"), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}), 0o600))
	return dir, ca
}
