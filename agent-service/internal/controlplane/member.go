// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"reflect"
	"slices"
	"time"

	"github.com/muster-io/muster/agent-service/internal/join"
)

// peerTimeout bounds a question to another member of etcd, which may be off.
const peerTimeout = 3 * time.Second

// membership is what a machine remembers of its member of etcd beside the data of that.
type membership struct {
	Token   string        `json:"token"`
	Own     join.Member   `json:"own"`
	Members []join.Member `json:"members"`
}

func (m Machine) membership() membership {
	return membership{m.clusterToken(), m.Group.Own(), m.Group.Members}
}

// asMember runs etcd where it may run: a member with an address that the others do not know, or without the data that it had, would be the beginning of a second cluster.
func (m Machine) asMember(run func(context.Context) error) func(context.Context) error {
	if m.Group == nil {
		return run
	}
	return func(ctx context.Context) error {
		if err := m.mayRun(ctx); err != nil {
			return err
		}
		return run(ctx)
	}
}

// mayRun says why this machine must not start its member of etcd.
func (m Machine) mayRun(ctx context.Context) error {
	own := m.Group.Own()
	addresses, err := m.Interfaces.Addresses()
	if err != nil {
		return fmt.Errorf("reading the addresses of this machine: %w", err)
	}
	if !slices.Contains(addresses, own.Address) {
		return fmt.Errorf("the other control planes know this machine, %s, by the address %s, and it has %v: give it that address again, by a reservation in DHCP, an NMStateConfig or the addresses of a pool", own.Name, own.Address, addresses)
	}
	remembered, err := m.remembered()
	if err != nil {
		return err
	}
	if remembered != nil && !reflect.DeepEqual(*remembered, m.membership()) {
		return fmt.Errorf("this machine was the member %s (%s) of another control plane: it cannot become %s (%s); reinstall the cluster", remembered.Own.Name, remembered.Own.Address, own.Name, own.Address)
	}
	_, err = os.Stat(m.path("etcd", "member"))
	if err == nil || !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if remembered == nil && !m.known(ctx) {
		return nil // it begins
	}
	return fmt.Errorf("the control plane of this machine, %s, has lost its data, and cannot replace it yet: the cluster goes on as long as two of its control planes run; save what it holds, and reinstall it", own.Name)
}

// remembered is nil for a machine whose member never was ready.
func (m Machine) remembered() (*membership, error) {
	content, err := os.ReadFile(m.path("member.json"))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	there := &membership{}
	if err := json.Unmarshal(content, there); err != nil {
		return nil, fmt.Errorf("%s: %w", m.path("member.json"), err)
	}
	return there, nil
}

// remember notes that the member of this machine has data.
func (m Machine) remember() error {
	content, err := json.Marshal(m.membership())
	if err != nil {
		return err
	}
	if there, err := os.ReadFile(m.path("member.json")); err == nil && bytes.Equal(there, content) {
		return nil
	}
	return replace(m.path("member.json"), content)
}

// known asks the other members whether this one has run before. Those that do not answer are no witnesses: at the beginning all of them are silent.
func (m Machine) known(ctx context.Context) bool {
	client, err := m.peerClient()
	if err != nil {
		return false
	}
	defer client.CloseIdleConnections()
	for _, other := range m.Group.Members {
		if other.Name == m.Group.Name {
			continue
		}
		members, err := membersAt(ctx, client, peerURL(other))
		if err == nil && slices.ContainsFunc(members, func(e etcdMember) bool { return e.Name == m.Group.Name && len(e.ClientURLs) > 0 }) {
			return true
		}
	}
	return false
}

// etcdMember is a member as another one shows it. Its name and its URLs for clients are there once it has run.
type etcdMember struct {
	Name       string   `json:"name"`
	ClientURLs []string `json:"clientURLs"`
}

func membersAt(ctx context.Context, client *http.Client, url string) ([]etcdMember, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/members", http.NoBody)
	if err != nil {
		return nil, err
	}
	response, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	var members []etcdMember
	err = json.NewDecoder(io.LimitReader(response.Body, maxAnswer)).Decode(&members)
	return members, err
}

// peerClient asks other members as a member does.
func (m Machine) peerClient() (*http.Client, error) {
	certificate, err := tls.LoadX509KeyPair(m.pki(peer+".crt"), m.pki(peer+".key"))
	if err != nil {
		return nil, fmt.Errorf("loading the certificate of the member of etcd: %w", err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM([]byte(m.Group.Etcd.CA))
	return &http.Client{Timeout: peerTimeout, Transport: &http.Transport{
		TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots, Certificates: []tls.Certificate{certificate}},
		DialContext:     (&net.Dialer{LocalAddr: &net.TCPAddr{IP: m.Group.Own().Address.AsSlice()}}).DialContext,
	}}, nil
}

// memberAnswers is true when etcd has a leader, and stores. A socket alone is there before the members have found each other.
func (m Machine) memberAnswers(ctx context.Context, connection net.Conn) error {
	defer func() { _ = connection.Close() }()
	client := &http.Client{Timeout: answerTimeout, Transport: &http.Transport{
		DisableKeepAlives: true, DialContext: func(context.Context, string, string) (net.Conn, error) { return connection, nil },
	}}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://etcd/health", http.NoBody)
	if err != nil {
		return err
	}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("etcd is not healthy: %s", response.Status)
	}
	return m.remember()
}
