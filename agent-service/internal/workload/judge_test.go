// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"net"
	"net/netip"
	"net/url"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"

	hivev1 "github.com/muster-io/muster/apis/hive/v1"
)

func encoded(t *testing.T, template x509.CertificateRequest) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	der, err := x509.CreateCertificateRequest(rand.Reader, &template, key)
	require.NoError(t, err)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})
}

func subject(name string, organizations ...string) x509.CertificateRequest {
	if organizations == nil {
		organizations = []string{"system:nodes"}
	}
	return x509.CertificateRequest{Subject: pkix.Name{CommonName: name, Organization: organizations}}
}

// joins is the request of worker-1's kubelet for its first certificate.
func joins(change func(*certificatesv1.CertificateSigningRequest, *x509.CertificateRequest)) func(t *testing.T) *certificatesv1.CertificateSigningRequest {
	return func(t *testing.T) *certificatesv1.CertificateSigningRequest {
		t.Helper()
		asked := subject("system:node:worker-1")
		request := &certificatesv1.CertificateSigningRequest{Spec: certificatesv1.CertificateSigningRequestSpec{
			SignerName: certificatesv1.KubeAPIServerClientKubeletSignerName, Username: "system:bootstrap:token1",
			Groups: []string{"system:bootstrappers", hivev1.NodeBootstrapGroup, "system:authenticated"},
			Usages: []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageClientAuth},
		}}
		return finished(t, request, asked, change)
	}
}

// serves is its request for a serving certificate.
func serves(change func(*certificatesv1.CertificateSigningRequest, *x509.CertificateRequest)) func(t *testing.T) *certificatesv1.CertificateSigningRequest {
	return func(t *testing.T) *certificatesv1.CertificateSigningRequest {
		t.Helper()
		asked := subject("system:node:worker-1")
		asked.DNSNames, asked.IPAddresses = []string{"worker-1"}, []net.IP{net.IPv4(192, 0, 2, 11)}
		request := &certificatesv1.CertificateSigningRequest{Spec: certificatesv1.CertificateSigningRequestSpec{
			SignerName: certificatesv1.KubeletServingSignerName, Username: "system:node:worker-1", Groups: []string{"system:nodes", "system:authenticated"},
			Usages: []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageServerAuth},
		}}
		return finished(t, request, asked, change)
	}
}

func finished(t *testing.T, request *certificatesv1.CertificateSigningRequest, asked x509.CertificateRequest, change func(*certificatesv1.CertificateSigningRequest, *x509.CertificateRequest)) *certificatesv1.CertificateSigningRequest {
	t.Helper()
	if change != nil {
		change(request, &asked)
	}
	if request.Spec.Request == nil {
		request.Spec.Request = encoded(t, asked)
	}
	return request
}

// cluster has Nodes, of which one is Ready, and one may be another machine's.
type cluster struct{ ready, notReady, foreign string }

func (c cluster) has(name string) bool   { return name == c.ready || name == c.notReady }
func (c cluster) taken(name string) bool { return name == c.ready }
func (c cluster) owns(m Machine) bool    { return m.NodeName != c.foreign }

// Each case is an attempt; few of them are what an honest kubelet sends.
func TestJudge(t *testing.T) {
	type csr = certificatesv1.CertificateSigningRequest
	type pkcs = x509.CertificateRequest
	machines := []Machine{
		{NodeName: "worker-1", TokenID: "token1", Joining: true, Addresses: []netip.Addr{netip.MustParseAddr("192.0.2.11"), netip.MustParseAddr("2001:db8::11")}},
		{NodeName: "worker-2", TokenID: "token2", Joining: true},
		{NodeName: "free", TokenID: "token3"},
		{NodeName: "kubernetes", TokenID: "token5", Joining: true, NameReserved: true},
		{NodeName: "worker-4", TokenID: "token4", Joining: true, Rejoins: true},
	}
	again := func(name string) func(t *testing.T) *csr {
		return joins(func(r *csr, p *pkcs) {
			r.Spec.Username, p.Subject.CommonName = "system:bootstrap:token4", "system:node:"+name
		})
	}
	for name, c := range map[string]struct {
		given func(t *testing.T) *csr
		taken string
		lost  string
		// foreign is a Node that was there before the host of its name.
		foreign string
		want    Verdict
		says    string
	}{
		"a node joins again":                              {given: again("worker-4"), lost: "worker-4", want: Approve},
		"a node joins again that was deleted":             {given: again("worker-4"), want: Deny, says: "the Node worker-4 was deleted"},
		"a node joins again that is Ready":                {given: again("worker-4"), taken: "worker-4", want: Deny, says: "Ready already"},
		"a node joins again as another that is not Ready": {given: again("worker-1"), lost: "worker-1", want: Deny, says: "is for node worker-4"},
		"a host joins":                                    {given: joins(nil), want: Approve},
		"a node serves at its own address":                {given: serves(nil), want: Approve},
		"another node's name":                             {given: joins(func(_ *csr, p *pkcs) { p.Subject.CommonName = "system:node:victim" }), want: Deny, says: "is for node worker-1"},
		"the name of another host":                        {given: joins(func(_ *csr, p *pkcs) { p.Subject.CommonName = "system:node:worker-2" }), want: Deny, says: "is for node worker-1"},
		"an administrator":                                {given: joins(func(_ *csr, p *pkcs) { *p = subject("admin", "system:masters") }), want: Deny, says: "system:masters"},
		"a node that is an administrator, too":            {given: joins(func(_ *csr, p *pkcs) { p.Subject.Organization = []string{"system:nodes", "system:masters"} }), want: Deny},
		"no group":                                        {given: joins(func(_ *csr, p *pkcs) { p.Subject.Organization = nil }), want: Deny},
		"a client certificate with a name": {
			given: joins(func(_ *csr, p *pkcs) { p.DNSNames = []string{"kubernetes.default.svc"} }), want: Deny, says: "names no address"},
		"a client certificate that serves": {
			given: joins(func(r *csr, _ *pkcs) { r.Spec.Usages = append(r.Spec.Usages, certificatesv1.UsageServerAuth) }), want: Deny, says: "usages"},
		"a client certificate that signs": {
			given: joins(func(r *csr, _ *pkcs) { r.Spec.Usages = append(r.Spec.Usages, certificatesv1.UsageCertSign) }), want: Deny, says: "usages"},
		"a token of no host": {given: joins(func(r *csr, _ *pkcs) { r.Spec.Username = "system:bootstrap:others" }), want: Leave},
		"a token of a host that is free": {
			given: joins(func(r *csr, p *pkcs) {
				r.Spec.Username, p.Subject.CommonName = "system:bootstrap:token3", "system:node:free"
			}), want: Leave},
		"a token of another group":     {given: joins(func(r *csr, _ *pkcs) { r.Spec.Groups = []string{"system:bootstrappers"} }), want: Leave},
		"the API server's own client":  {given: joins(func(r *csr, _ *pkcs) { r.Spec.SignerName = certificatesv1.KubeAPIServerClientSignerName }), want: Leave},
		"a Node of that name is Ready": {given: joins(nil), taken: "worker-1", want: Deny, says: "give the host another name"},
		"not a certificate request": {
			given: joins(func(r *csr, _ *pkcs) {
				r.Spec.Request = []byte("-----BEGIN CERTIFICATE REQUEST-----\nAAAA\n-----END CERTIFICATE REQUEST-----\n")
			}), want: Deny, says: "cannot be read"},
		"a signed request": {
			given: joins(func(r *csr, _ *pkcs) {
				r.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{Type: certificatesv1.CertificateDenied, Status: corev1.ConditionTrue}}
			}), want: Leave},
		"a foreign address": {
			given: serves(func(_ *csr, p *pkcs) { p.IPAddresses = append(p.IPAddresses, net.IPv4(192, 0, 2, 12)) }), want: Deny, says: "192.0.2.12, which is not one of its host"},
		"an address of the other family": {given: serves(func(_ *csr, p *pkcs) { p.IPAddresses = append(p.IPAddresses, net.ParseIP("2001:db8::11")) }), want: Approve},
		"a foreign name":                 {given: serves(func(_ *csr, p *pkcs) { p.DNSNames = append(p.DNSNames, "kubernetes") }), want: Deny, says: `names "kubernetes"`},
		"a wildcard":                     {given: serves(func(_ *csr, p *pkcs) { p.DNSNames = []string{"*"} }), want: Deny},
		"no name and no address":         {given: serves(func(_ *csr, p *pkcs) { p.DNSNames, p.IPAddresses = nil, nil }), want: Deny},
		"the name of the API server": {
			given: serves(func(r *csr, p *pkcs) {
				r.Spec.Username, p.Subject.CommonName, p.DNSNames, p.IPAddresses = "system:node:kubernetes", "system:node:kubernetes", []string{"kubernetes"}, nil
			}), want: Deny, says: "kubernetes is a name of the API server"},
		"a URI": {
			given: serves(func(_ *csr, p *pkcs) { p.URIs = []*url.URL{{Scheme: "spiffe", Host: "x"}} }), want: Deny, says: "only have the name and addresses"},
		"another node serves in its name": {
			given: serves(func(r *csr, _ *pkcs) { r.Spec.Username = "system:node:worker-2" }), want: Deny, says: "of node worker-2"},
		"a node of others serves": {
			given: serves(func(r *csr, p *pkcs) {
				r.Spec.Username, p.Subject.CommonName = "system:node:other", "system:node:other"
			}), want: Leave},
		"a node that has the name of a host that has not joined": {given: serves(func(_ *csr, p *pkcs) { p.IPAddresses = []net.IP{net.IPv4(198, 51, 100, 1)} }), foreign: "worker-1", want: Leave},
		"a user by the name of a node":                           {given: serves(func(r *csr, _ *pkcs) { r.Spec.Groups = []string{"system:authenticated"} }), want: Leave},
	} {
		t.Run(name, func(t *testing.T) {
			verdict, why := judge(c.given(t), machines, cluster{c.taken, c.lost, c.foreign})
			assert.Equal(t, c.want, verdict, why)
			assert.Contains(t, why, c.says)
		})
	}
}

func TestANewBindingHasANewToken(t *testing.T) {
	tokens, err := NewTokens([]byte("a key"))
	require.NoError(t, err)
	others, err := NewTokens([]byte("another key"))
	require.NoError(t, err)
	h := host("worker-1")
	before := tokens.ID(h) + tokens.secret(h)
	assert.Regexp(t, `^[a-z0-9]{22}$`, before)
	assert.Equal(t, before, tokens.ID(h)+tokens.secret(h), "it can be repeated")
	assert.NotEqual(t, before, others.ID(h)+others.secret(h))
	h.Stamps.Registration = "again"
	assert.Equal(t, before, tokens.ID(h)+tokens.secret(h), "a restart of the agent is no new binding")
	h.Node.Rejoin.Stamp = "lost"
	lost := tokens.ID(h) + tokens.secret(h)
	assert.NotEqual(t, before[:6], lost[:6], "the token of the installation is not that of a node that lost its certificate")
	assert.NotEqual(t, before[6:], lost[6:])
	h.Node.Rejoin.Stamp = "lost again"
	assert.NotEqual(t, lost[:6], tokens.ID(h))
	h.Node.Rejoin.Stamp, h.Stamps.Binding = "", "again"
	assert.NotEqual(t, before[:6], tokens.ID(h))
	assert.NotEqual(t, before[6:], tokens.secret(h))
}
