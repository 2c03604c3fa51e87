// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"time"

	"github.com/muster-io/muster/apis/nodeobjects"
	"github.com/muster-io/muster/apis/pki"
)

const (
	caLifetime = 10 * 365 * 24 * time.Hour
	// leafLifetime is that of all other certificates, the admin's included.
	leafLifetime = 2 * 365 * 24 * time.Hour
	// renewBefore is how long before its end a certificate is replaced: long enough for users to fetch the kubeconfig again.
	renewBefore = 120 * 24 * time.Hour
	clockSkew   = 5 * time.Minute
)

// leaf is a certificate that the control plane needs.
type leaf struct {
	pki.Leaf
	file         string
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
	hosts := []string{host.WithZone("").String(), "localhost", "127.0.0.1"}
	if serviceIP != nil {
		hosts = append(hosts, serviceIP.String())
	}
	list := []leaf{
		{file: "apiserver", Leaf: pki.APIServer(hosts...)},
		{file: "admin", Leaf: pki.Admin()},
		{file: "controller-manager", Leaf: pki.ControllerManager()},
		{file: "front-proxy-client", Leaf: pki.FrontProxy(), byFrontProxy: true},
	}
	if nodes {
		list = append(list,
			leaf{file: "scheduler", Leaf: pki.Scheduler()},
			leaf{file: "kubelet-client", Leaf: pki.KubeletClient(KubeletClientsGroup)},
			leaf{file: "node-manager", Leaf: pki.Client(NodeManagerUser)},
		)
	}
	return list
}

// keys are the keys and certificates in a data directory.
type keys layout

func (k keys) path(file string) string { return layout(k).pki(file) }

func (k keys) write(file string, content []byte) error { return layout(k).write(k.path(file), content) }

// ensure makes the keys and certificates that are missing, invalid or near their end. It never
// replaces an authority or the service-account key that can be read: kubeconfigs and tokens depend on them.
func (k keys) ensure(now time.Time, host netip.Addr, serviceIP net.IP, nodes bool) error {
	cluster, err := k.ensureAuthority(now, "ca", pki.ClusterAuthority)
	if err != nil {
		return err
	}
	frontProxy, err := k.ensureAuthority(now, "front-proxy-ca", pki.ProxyAuthority)
	if err != nil {
		return err
	}
	for _, want := range leaves(host, serviceIP, nodes) {
		signer := cluster
		if want.byFrontProxy {
			signer = frontProxy
		}
		if err := k.ensureLeaf(now, signer, want); err != nil {
			return err
		}
	}
	return k.ensureServiceAccountKey()
}

func (k keys) ensureAuthority(now time.Time, file, name string) (pki.Pair, error) {
	there, err := k.readPair(file)
	if err == nil {
		return there, nil
	}
	if !os.IsNotExist(err) {
		return pki.Pair{}, &DamagedError{File: k.path(file + ".crt"), Cause: err}
	}
	made, err := pki.NewAuthority(name, pki.Lasting(now, caLifetime))
	if err != nil {
		return pki.Pair{}, err
	}
	return made, k.writePair(file, made)
}

func (k keys) ensureLeaf(now time.Time, signer pki.Pair, want leaf) error {
	there, err := k.readPair(want.file)
	if err == nil && want.satisfiedBy(there.Certificate, signer.Certificate, now) {
		return nil
	}
	made, err := signer.Issue(want.Leaf, pki.Period{From: now.Add(-clockSkew), Until: now.Add(leafLifetime)})
	if err != nil {
		return err
	}
	return k.writePair(want.file, made)
}

func (l leaf) satisfiedBy(certificate, signer *x509.Certificate, now time.Time) bool {
	return certificate.CheckSignatureFrom(signer) == nil &&
		now.After(certificate.NotBefore) && !nearsEnd(certificate, now) &&
		certificate.Subject.CommonName == l.User && slices.Equal(certificate.Subject.Organization, l.Groups) &&
		slices.Equal(certificate.DNSNames, l.Names) && slices.EqualFunc(certificate.IPAddresses, l.Addresses, net.IP.Equal)
}

// nearsEnd says whether the certificate is to be replaced for its age.
func nearsEnd(certificate *x509.Certificate, now time.Time) bool {
	return !now.Before(certificate.NotAfter.Add(-renewBefore))
}

// writePair writes the key first; a certificate counts only together with its own key.
func (k keys) writePair(file string, pair pki.Pair) error {
	certificate, key, err := pair.Encode()
	if err != nil {
		return err
	}
	if err := k.write(file+".key", key); err != nil {
		return err
	}
	return k.write(file+".crt", certificate)
}

// ensureServiceAccountKey makes the key pair that signs service-account tokens.
func (k keys) ensureServiceAccountKey() error {
	key, err := k.readKey("sa")
	if os.IsNotExist(err) {
		if key, err = k.newServiceAccountKey(); err != nil {
			return err
		}
	}
	if err != nil {
		return &DamagedError{File: k.path("sa.key"), Cause: err}
	}
	public, err := pki.EncodePublicKey(key)
	if err != nil {
		return err
	}
	if present, err := os.ReadFile(k.path("sa.pub")); err == nil && bytes.Equal(present, public) {
		return nil
	}
	return k.write("sa.pub", public)
}

func (k keys) newServiceAccountKey() (*ecdsa.PrivateKey, error) {
	key, err := pki.NewKey()
	if err != nil {
		return nil, err
	}
	text, err := pki.EncodeKey(key)
	if err != nil {
		return nil, err
	}
	return key, k.write("sa.key", text)
}

// readPair reads a certificate and its key. A certificate without its own key counts as not there: that is what a
// process that was killed between the two writes leaves.
func (k keys) readPair(file string) (pki.Pair, error) {
	certificate, err := os.ReadFile(k.path(file + ".crt"))
	if err != nil {
		return pki.Pair{}, err
	}
	key, err := os.ReadFile(k.path(file + ".key"))
	if err != nil {
		return pki.Pair{}, err
	}
	pair, err := pki.Parse(certificate, key)
	switch {
	case errors.Is(err, pki.ErrForeignKey):
		return pki.Pair{}, os.ErrNotExist
	case err != nil:
		return pki.Pair{}, fmt.Errorf("%s: %w", k.path(file+".crt"), err)
	}
	return pair, nil
}

func (k keys) readKey(file string) (*ecdsa.PrivateKey, error) {
	text, err := os.ReadFile(k.path(file + ".key"))
	if err != nil {
		return nil, err
	}
	return pki.ParseKey(text)
}
