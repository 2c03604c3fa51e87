// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/netip"
	"os"
	"slices"
	"time"

	"github.com/muster-io/muster/apis/nodeobjects"
)

const (
	caLifetime = 10 * 365 * 24 * time.Hour
	// leafLifetime is that of all other certificates, the admin's included.
	leafLifetime = 2 * 365 * 24 * time.Hour
	// renewBefore is how long before its end a certificate is replaced: long enough for users to fetch the kubeconfig again.
	renewBefore = 120 * 24 * time.Hour
	clockSkew   = 5 * time.Minute
)

// authority is a certificate authority in memory.
type authority struct {
	name        string
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
	pem         []byte
}

// leaf describes a certificate that the control plane needs.
type leaf struct {
	file         string
	user         string
	groups       []string
	dnsNames     []string
	ips          []net.IP
	usage        x509.ExtKeyUsage
	byFrontProxy bool
}

// Identities in a control plane that takes nodes.
const (
	// NodeManagerUser makes bootstrap tokens, approves certificate requests of nodes, and deletes nodes. The cluster's RBAC
	// gives it its rights.
	NodeManagerUser = nodeobjects.NodeManagerUser
	// KubeletClientsGroup is the group of the API server as a client of kubelets.
	KubeletClientsGroup = nodeobjects.KubeletClientsGroup
)

// leaves lists the certificates beside the two authorities.
func leaves(host netip.Addr, serviceIP net.IP, nodes bool) []leaf {
	list := []leaf{
		{
			file: "apiserver", user: "kube-apiserver", usage: x509.ExtKeyUsageServerAuth,
			dnsNames: []string{
				"kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local", "localhost",
			},
			ips: []net.IP{net.IP(host.AsSlice()), net.IPv4(127, 0, 0, 1), serviceIP},
		},
		{
			file: "admin", user: "system:admin", groups: []string{"system:masters"},
			usage: x509.ExtKeyUsageClientAuth,
		},
		{file: "controller-manager", user: "system:kube-controller-manager", usage: x509.ExtKeyUsageClientAuth},
		{file: "front-proxy-client", user: "front-proxy-client", usage: x509.ExtKeyUsageClientAuth, byFrontProxy: true},
	}
	if nodes {
		list = append(list,
			leaf{file: "scheduler", user: "system:kube-scheduler", usage: x509.ExtKeyUsageClientAuth},
			leaf{file: "kubelet-client", user: "kube-apiserver-kubelet-client", groups: []string{KubeletClientsGroup}, usage: x509.ExtKeyUsageClientAuth},
			leaf{file: "node-manager", user: NodeManagerUser, usage: x509.ExtKeyUsageClientAuth},
		)
	}
	return list
}

// ensurePKI makes the keys and certificates that are missing, invalid or near their end. It never
// replaces an authority or the service-account key that can be read: kubeconfigs and tokens depend on them.
func (d layout) ensurePKI(now time.Time, host netip.Addr, serviceIP net.IP, nodes bool) error {
	cluster, err := d.ensureAuthority(now, "ca", "kubernetes")
	if err != nil {
		return err
	}
	frontProxy, err := d.ensureAuthority(now, "front-proxy-ca", "front-proxy-ca")
	if err != nil {
		return err
	}
	for _, want := range leaves(host, serviceIP, nodes) {
		signer := cluster
		if want.byFrontProxy {
			signer = frontProxy
		}
		if err := d.ensureLeaf(now, signer, want); err != nil {
			return err
		}
	}
	return d.ensureServiceAccountKey()
}

func (d layout) ensureAuthority(now time.Time, file, name string) (authority, error) {
	certificate, key, raw, err := d.readPair(file)
	if err == nil {
		return authority{name: name, certificate: certificate, key: key, pem: raw}, nil
	}
	if !os.IsNotExist(err) {
		return authority{}, &DamagedError{File: d.pki(file + ".crt"), Cause: err}
	}
	template := &x509.Certificate{
		Subject:               pkix.Name{CommonName: name},
		NotBefore:             now.Add(-clockSkew),
		NotAfter:              now.Add(caLifetime),
		KeyUsage:              x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		BasicConstraintsValid: true,
		IsCA:                  true,
		DNSNames:              []string{name},
	}
	if err := d.issue(file, template, authority{}); err != nil {
		return authority{}, err
	}
	certificate, key, raw, err = d.readPair(file)
	return authority{name: name, certificate: certificate, key: key, pem: raw}, err
}

func (d layout) ensureLeaf(now time.Time, signer authority, want leaf) error {
	certificate, _, _, err := d.readPair(want.file)
	if err == nil && want.satisfiedBy(certificate, signer, now) {
		return nil
	}
	return d.issue(want.file, &x509.Certificate{
		Subject:     pkix.Name{CommonName: want.user, Organization: want.groups},
		NotBefore:   now.Add(-clockSkew),
		NotAfter:    now.Add(leafLifetime),
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{want.usage},
		DNSNames:    want.dnsNames,
		IPAddresses: want.ips,
	}, signer)
}

func (l leaf) satisfiedBy(certificate *x509.Certificate, signer authority, now time.Time) bool {
	return certificate.CheckSignatureFrom(signer.certificate) == nil &&
		now.After(certificate.NotBefore) && !nearsEnd(certificate, now) &&
		certificate.Subject.CommonName == l.user && slices.Equal(certificate.Subject.Organization, l.groups) &&
		slices.Equal(certificate.DNSNames, l.dnsNames) && slices.EqualFunc(certificate.IPAddresses, l.ips, net.IP.Equal)
}

// nearsEnd says whether the certificate is to be replaced for its age.
func nearsEnd(certificate *x509.Certificate, now time.Time) bool {
	return !now.Before(certificate.NotAfter.Add(-renewBefore))
}

// issue makes a key and a certificate for it, signed by the signer or, when that is the zero authority, by itself. The key
// is written first; a certificate counts only together with its own key.
func (d layout) issue(file string, template *x509.Certificate, signer authority) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return fmt.Errorf("generating the key %s: %w", file, err)
	}
	if template.SerialNumber, err = rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120)); err != nil {
		return fmt.Errorf("generating a serial number: %w", err)
	}
	if signer.certificate == nil {
		signer.certificate, signer.key = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, signer.certificate, key.Public(), signer.key)
	if err != nil {
		return fmt.Errorf("signing the certificate %s: %w", file, err)
	}
	if err := d.writeKey(d.pki(file+".key"), key); err != nil {
		return err
	}
	return d.write(d.pki(file+".crt"), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}

func (d layout) writeKey(path string, key *ecdsa.PrivateKey) error {
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return fmt.Errorf("encoding the key %s: %w", path, err)
	}
	return d.write(path, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}))
}

// ensureServiceAccountKey makes the key pair that signs service-account tokens.
func (d layout) ensureServiceAccountKey() error {
	key, err := readKey(d.pki("sa.key"))
	if os.IsNotExist(err) {
		if key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
			return fmt.Errorf("generating the service-account key: %w", err)
		}
		err = d.writeKey(d.pki("sa.key"), key)
		if err != nil {
			return err
		}
	}
	if err != nil {
		return &DamagedError{File: d.pki("sa.key"), Cause: err}
	}
	der, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return fmt.Errorf("encoding the service-account key: %w", err)
	}
	public := pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
	if present, err := os.ReadFile(d.pki("sa.pub")); err == nil && bytes.Equal(present, public) {
		return nil
	}
	return d.write(d.pki("sa.pub"), public)
}

// readPair reads a certificate and its key. A certificate without its own key counts as not there: that is what a
// process that was killed between the two writes leaves.
func (d layout) readPair(file string) (*x509.Certificate, *ecdsa.PrivateKey, []byte, error) {
	raw, err := os.ReadFile(d.pki(file + ".crt"))
	if err != nil {
		return nil, nil, nil, err
	}
	key, err := readKey(d.pki(file + ".key"))
	if err != nil {
		return nil, nil, nil, err
	}
	block, _ := pem.Decode(raw)
	if block == nil {
		return nil, nil, nil, fmt.Errorf("%s holds no certificate", d.pki(file+".crt"))
	}
	certificate, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return nil, nil, nil, err
	}
	if !key.PublicKey.Equal(certificate.PublicKey) {
		return nil, nil, nil, os.ErrNotExist
	}
	return certificate, key, raw, nil
}

func readKey(path string) (*ecdsa.PrivateKey, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(raw)
	if block == nil {
		return nil, fmt.Errorf("%s holds no key", path)
	}
	return x509.ParseECPrivateKey(block.Bytes)
}
