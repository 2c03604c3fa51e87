// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"github.com/muster-io/muster/agent-service/internal/join"
	"github.com/muster-io/muster/apis/nodeobjects"
	"github.com/muster-io/muster/apis/pki"
)

// frontProxy is the name of the API server as a proxy of aggregated APIs.
const frontProxy = "front-proxy-client"

// admin is the user of the machine itself.
const admin = "admin"

// peer is the machine as a member of etcd.
const peer = "etcd-peer"

// write makes the keys that are missing, signs all certificates anew, and writes what the programs read.
func (m Machine) write(now time.Time) error {
	for _, dir := range []string{m.Dir, m.path("pki"), m.path("run"), m.path("etcd")} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return err
		}
	}
	given := pair{[]byte(m.CA), []byte(m.CAKey)}
	cluster, err := readAuthority(given)
	if err != nil {
		return err
	}
	if err := m.keep("ca", given); err != nil {
		return err
	}
	proxies, err := m.proxies(now)
	if err != nil {
		return err
	}
	signed := map[string]leaf{
		"apiserver":      m.serving(),
		"kubelet-client": {user: "kube-apiserver-kubelet-client", group: nodeobjects.KubeletClientsGroup, usage: asClient},
		// These have kubeconfigs.
		admin:             {user: "system:admin", group: "system:masters", usage: asClient},
		controllerManager: {user: "system:kube-controller-manager", usage: asClient},
		scheduler:         {user: "system:kube-scheduler", usage: asClient},
	}
	for file, l := range signed {
		if err := m.sign(now, cluster, file, l); err != nil {
			return err
		}
	}
	if err := m.sign(now, proxies, frontProxy, leaf{user: frontProxy, usage: asClient}); err != nil {
		return err
	}
	if err := m.ensureTokenKey(); err != nil {
		return err
	}
	if err := m.writePeer(now); err != nil {
		return err
	}
	for _, user := range []string{controllerManager, scheduler} {
		if err := m.writeKubeconfig(user); err != nil {
			return err
		}
	}
	return nil
}

// serving is the certificate of the API server.
func (m Machine) serving() leaf {
	asService := pki.APIServer()
	l := leaf{user: asService.User, usage: asServer, names: asService.Names}
	at, _ := m.Address() // it was validated when it was read
	l.addresses = append(l.addresses, net.IP(at.Addr().AsSlice()))
	if m.Group != nil {
		l.addresses = append(l.addresses, net.IP(m.Group.Own().Address.AsSlice()), net.IP(loopback(at.Addr()).AsSlice()))
	}
	for _, services := range m.ServiceCIDRs {
		l.addresses = append(l.addresses, net.IP(services.Masked().Addr().Next().AsSlice()))
	}
	for _, name := range m.Names {
		if address, err := netip.ParseAddr(name); err == nil {
			l.addresses = append(l.addresses, net.IP(address.AsSlice()))
		} else {
			l.names = append(l.names, name)
		}
	}
	return l
}

func (m Machine) sign(now time.Time, by authority, file string, l leaf) error {
	made, err := by.issue(now, leafLifetime, l)
	if err != nil {
		return err
	}
	return m.keep(file, made)
}

// proxies is the authority of API servers as proxies: that of the group, or one of this machine alone.
func (m Machine) proxies(now time.Time) (authority, error) {
	const name = "front-proxy-ca"
	if m.Group == nil {
		return m.ensureAuthority(now, name)
	}
	return m.keepAuthority(name, m.Group.FrontProxy)
}

// writePeer signs the certificate by which the members of etcd know each other. No other authority signs one.
func (m Machine) writePeer(now time.Time) error {
	if m.Group == nil {
		return nil
	}
	peers, err := m.keepAuthority("etcd-ca", m.Group.Etcd)
	if err != nil {
		return err
	}
	own := m.Group.Own()
	return m.sign(now, peers, peer, leaf{user: own.Name, addresses: []net.IP{own.Address.AsSlice()}, usage: asPeer})
}

func (m Machine) keepAuthority(name string, given join.Authority) (authority, error) {
	there := pair{[]byte(given.CA), []byte(given.CAKey)}
	a, err := readAuthority(there)
	if err != nil {
		return authority{}, fmt.Errorf("%s: %w", name, err)
	}
	return a, m.keep(name, there)
}

// ensureAuthority makes an authority of this machine alone, once.
func (m Machine) ensureAuthority(now time.Time, name string) (authority, error) {
	var there pair
	var err, err2 error
	there.certificate, err = os.ReadFile(m.pki(name + ".crt"))
	there.key, err2 = os.ReadFile(m.pki(name + ".key"))
	switch err := errors.Join(err, err2); {
	case errors.Is(err, os.ErrNotExist):
		a, made, err := newAuthority(now, name)
		if err != nil {
			return authority{}, err
		}
		return a, m.keep(name, made)
	case err != nil:
		return authority{}, err
	}
	a, err := readAuthority(there)
	if err != nil {
		return authority{}, fmt.Errorf("%s: %w", m.pki(name), err)
	}
	return a, nil
}

// ensureTokenKey writes the key pair that signs tokens of service accounts: that of the group, or one that is made once.
func (m Machine) ensureTokenKey() error {
	content, err := os.ReadFile(m.pki("sa.key"))
	if m.Group != nil {
		content, err = []byte(m.Group.ServiceAccountKey), replace(m.pki("sa.key"), []byte(m.Group.ServiceAccountKey))
	}
	if errors.Is(err, os.ErrNotExist) {
		if content, err = newKey(); err == nil {
			err = replace(m.pki("sa.key"), content)
		}
	}
	if err != nil {
		return err
	}
	key, err := pki.ParseKey(content)
	if err != nil {
		return fmt.Errorf("%s holds no key", m.pki("sa.key"))
	}
	public, err := pki.EncodePublicKey(key)
	if err != nil {
		return err
	}
	return replace(m.pki("sa.pub"), public)
}

// writeKubeconfig names files, so that a renewed certificate is read without a restart.
func (m Machine) writeKubeconfig(user string) error {
	content, err := kubeconfig(m.Cluster, map[string]any{"server": m.server(), "certificate-authority": m.pki("ca.crt")}, map[string]any{
		"client-certificate": m.pki(user + ".crt"), "client-key": m.pki(user + ".key"),
	})
	if err != nil {
		return err
	}
	return replace(m.conf(user), content)
}

// keep writes a key and then its certificate.
func (m Machine) keep(file string, p pair) error {
	return errors.Join(replace(m.pki(file+".key"), p.key), replace(m.pki(file+".crt"), p.certificate))
}

// replace replaces a file that only root reads.
func replace(path string, content []byte) error {
	next := path + ".next"
	if err := os.WriteFile(next, content, 0o600); err != nil { //nolint:gosec,nolintlint // the paths are those of the program itself; whether gosec follows them depends on the packages that it sees
		return err
	}
	return os.Rename(next, path)
}

// short is a path of a directory that is as short as one can be, until done.
func short(directory string) (path string, done func(), err error) {
	opened, err := os.Open(directory)
	if err != nil {
		return "", nil, err
	}
	return filepath.Join("/proc/self/fd", fmt.Sprint(opened.Fd())), func() { _ = opened.Close() }, nil
}
