// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
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
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	metal3v1 "github.com/muster-io/muster/apis/metal3/v1alpha1"
	"github.com/muster-io/muster/discovery-operator/internal/admission"
	"github.com/muster-io/muster/discovery-operator/internal/demo"
)

func TestASecondHostOfABootMACIsRefused(t *testing.T) {
	w := newWorld(t)
	dir, ca := certificate(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	address := l.Addr().String()
	require.NoError(t, l.Close())
	w.operate(func(o *Options) { o.WebhookBindAddress, o.WebhookCertDir = address, dir })
	none := admissionregistrationv1.SideEffectClassNone
	fail := admissionregistrationv1.Fail
	require.NoError(t, w.Create(t.Context(), &admissionregistrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: w.system},
		Webhooks: []admissionregistrationv1.ValidatingWebhook{{
			Name: "baremetalhosts.muster.io", SideEffects: &none, FailurePolicy: &fail, AdmissionReviewVersions: []string{"v1"},
			ClientConfig:      admissionregistrationv1.WebhookClientConfig{URL: new("https://" + address + admission.Path), CABundle: ca},
			NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"kubernetes.io/metadata.name": w.ns}},
			Rules: []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create, admissionregistrationv1.Update},
				Rule:       admissionregistrationv1.Rule{APIGroups: []string{"metal3.io"}, APIVersions: []string{"v1alpha1"}, Resources: []string{"baremetalhosts"}},
			}},
		}},
	}))
	t.Cleanup(func() {
		_ = w.Delete(context.Background(), &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: w.system}})
	})
	host := func(name, mac string) *metal3v1.BareMetalHost {
		h := &metal3v1.BareMetalHost{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: name}}
		h.Spec = metal3v1.BareMetalHostSpec{Online: true, BootMACAddress: mac, AutomatedCleaningMode: "metadata"}
		return h
	}
	w.eventually("the check answers", func() bool { return w.Create(t.Context(), host("first", demo.MAC(1, 0))) == nil })

	w.eventually("the second is refused", func() bool {
		err = w.Create(t.Context(), host("second", strings.ToUpper(demo.MAC(1, 0))))
		if err == nil {
			require.NoError(t, w.Delete(t.Context(), host("second", "")))
		}
		return err != nil
	})
	assert.True(t, apierrors.IsForbidden(err))
	require.ErrorContains(t, err, w.ns+"/first")
	other := host("other", demo.MAC(2, 0))
	require.NoError(t, w.Create(t.Context(), other))
	w.patch(other, `{"spec":{"online":false}}`)
	require.NoError(t, w.Create(t.Context(), host("without", "")), "hosts without boot MAC do not share one")
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
