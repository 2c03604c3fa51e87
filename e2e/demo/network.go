// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/muster-io/muster/apis/infrastructure/v1beta1"
	metal3v1 "github.com/muster-io/muster/apis/metal3/v1alpha1"
	"github.com/muster-io/muster/e2e/render"
)

// Names in deploy/samples/network-data.
const (
	networkSamples = "deploy/samples/network-data"
	hostTemplate   = "hosts"
)

// renderNetwork gives a host that was discovered its network data, and shows what is in the Secret.
func renderNetwork(ctx context.Context, s *stage) (string, error) {
	objects, err := render.Directory(networkSamples)
	if err != nil {
		return "", err
	}
	if err := render.Apply(ctx, s.admin, objects); err != nil {
		return "", err
	}
	host := &metal3v1.BareMetalHost{}
	if err := s.client.Get(ctx, client.ObjectKey{Namespace: machines, Name: firstHost}, host); err != nil {
		return "", fmt.Errorf("reading host %s: %w", firstHost, err)
	}
	claim := &infrav1.Metal3DataClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: machines, Name: firstHost, OwnerReferences: []metav1.OwnerReference{
			{APIVersion: metal3v1.GroupVersion.String(), Kind: "BareMetalHost", Name: host.Name, UID: host.UID},
		}},
		Spec: infrav1.Metal3DataClaimSpec{Template: infrav1.ObjectReference{Name: hostTemplate}},
	}
	started := time.Now()
	if err := s.client.Create(ctx, claim); err != nil {
		return "", fmt.Errorf("creating a claim of network data: %w", err)
	}
	secret := &corev1.Secret{}
	err = s.until(ctx, addressing, func(ctx context.Context) (bool, error) {
		err := s.client.Get(ctx, client.ObjectKey{Namespace: machines, Name: firstHost + infrav1.NetworkDataSuffix}, secret)
		if apierrors.IsNotFound(err) {
			return false, nil
		}
		if err != nil {
			return false, fmt.Errorf("reading the network data of host %s: %w", firstHost, err)
		}
		return true, nil
	})
	if err != nil {
		return "", err
	}
	took := time.Since(started)
	lines, err := networkTable(secret.Data[infrav1.NetworkDataKey])
	if err != nil {
		return "", err
	}
	for _, line := range lines {
		s.screen.say("  " + line)
	}
	return fmt.Sprintf("host %s has this network, in a Secret, %d ms after its claim: the MAC is its own, the rest comes from the pool", firstHost, took.Milliseconds()), nil
}

// networkTable draws network data: an address, and the link that it is on.
func networkTable(rendered []byte) ([]string, error) {
	var data struct {
		Links []struct {
			ID  string `json:"id"`
			MAC string `json:"ethernet_mac_address"`
		} `json:"links"`
		Networks []struct {
			IP      string `json:"ip_address"`
			Netmask string `json:"netmask"`
			Link    string `json:"link"`
			Routes  []struct {
				Gateway string `json:"gateway"`
			} `json:"routes"`
		} `json:"networks"`
		Services []struct {
			Address string `json:"address"`
		} `json:"services"`
	}
	if err := yaml.Unmarshal(rendered, &data); err != nil {
		return nil, fmt.Errorf("reading network data: %w", err)
	}
	macs := map[string]string{}
	for _, link := range data.Links {
		macs[link.ID] = link.MAC
	}
	var servers []string
	var rows [][]string
	for _, server := range data.Services {
		servers = append(servers, server.Address)
	}
	for _, network := range data.Networks {
		gateway := "-"
		if len(network.Routes) > 0 {
			gateway = network.Routes[0].Gateway
		}
		rows = append(rows, []string{network.Link, macs[network.Link], network.IP, network.Netmask, gateway, strings.Join(servers, ",")})
	}
	return grid(func(_, text string) string { return text }, []string{"LINK", "MAC", "ADDRESS", "NETMASK", "GATEWAY", "NAME SERVER"}, rows), nil
}
