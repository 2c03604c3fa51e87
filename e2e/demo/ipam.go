// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	ipamv1 "github.com/muster-io/muster/apis/ipam/v1alpha1"
	"github.com/muster-io/muster/e2e/render"
)

// Names in deploy/samples/ipam, and a pool that is too small.
const (
	addressSamples   = "deploy/samples/ipam"
	addressNamespace = "metal"
	addressPool      = "provisioning"
	tinyPool         = "tiny"
)

const (
	// addressing is for what should happen at once, on a busy machine.
	addressing = time.Minute
	// admission is for an API server on a busy machine that has to learn of kinds first.
	admission = 3 * time.Minute
)

func addressActs() []act {
	return []act{
		{"giving machines of two deployments their addresses, from one pool with sparse ranges", giveAddresses},
		{"claiming one address more than a pool has", exhaustPool},
		{"adding an address to that pool", growPool},
		{"rendering the network data of a host that was discovered", renderNetwork},
	}
}

func giveAddresses(ctx context.Context, s *stage) (string, error) {
	objects, err := render.Directory(addressSamples)
	if err != nil {
		return "", err
	}
	// For a few seconds after the kinds were installed the API server's admission does not know them yet.
	err = s.until(ctx, admission, func(ctx context.Context) (bool, error) {
		err := render.Apply(ctx, s.admin, objects)
		if status := apierrors.APIStatus(nil); errors.As(err, &status) && status.Status().Reason == metav1.StatusReasonServiceUnavailable {
			return false, nil
		}
		return err == nil, err
	})
	if err != nil {
		return "", err
	}
	started := time.Now()
	if err := s.untilClaims(ctx, addressPool, func(claims []ipamv1.IPClaim) bool {
		return len(claims) == 3 && !slices.ContainsFunc(claims, hasNoAddress)
	}); err != nil {
		return "", err
	}
	took := time.Since(started)
	if err := s.printAddresses(ctx, addressPool); err != nil {
		return "", err
	}
	return fmt.Sprintf("three claims have their addresses after %d ms: one was preallocated, one was asked for, one was chosen", took.Milliseconds()), nil
}

func exhaustPool(ctx context.Context, s *stage) (string, error) {
	pool := &ipamv1.IPPool{
		ObjectMeta: metav1.ObjectMeta{Namespace: addressNamespace, Name: tinyPool},
		Spec: ipamv1.IPPoolSpec{
			NamePrefix: tinyPool, Prefix: 24, Pools: []ipamv1.Pool{{Start: new(ipamv1.IPAddressStr("192.0.2.10")), End: new(ipamv1.IPAddressStr("192.0.2.11"))}},
		},
	}
	if err := s.client.Create(ctx, pool); err != nil {
		return "", fmt.Errorf("creating a pool: %w", err)
	}
	for _, name := range []string{"first", "second", "third"} {
		claim := &ipamv1.IPClaim{
			ObjectMeta: metav1.ObjectMeta{Namespace: addressNamespace, Name: name},
			Spec:       ipamv1.IPClaimSpec{Pool: ipamv1.ObjectReference{Name: tinyPool}},
		}
		if err := s.client.Create(ctx, claim); err != nil {
			return "", fmt.Errorf("creating a claim: %w", err)
		}
	}
	said := ""
	err := s.untilClaims(ctx, tinyPool, func(claims []ipamv1.IPClaim) bool {
		waiting := 0
		for i := range claims {
			if ready := meta.FindStatusCondition(claims[i].Status.Conditions, ipamv1.ReadyCondition); hasNoAddress(claims[i]) {
				waiting++
				if claims[i].Status.ErrorMessage != nil && ready != nil {
					said = fmt.Sprintf("the claim %s says why it has none: %s (%s)", claims[i].Name, ready.Message, ready.Reason)
				}
			}
		}
		return waiting == 1 && said != ""
	})
	return said, err
}

func growPool(ctx context.Context, s *stage) (string, error) {
	pool := &ipamv1.IPPool{}
	if err := s.client.Get(ctx, client.ObjectKey{Namespace: addressNamespace, Name: tinyPool}, pool); err != nil {
		return "", fmt.Errorf("reading a pool: %w", err)
	}
	before := pool.DeepCopy()
	pool.Spec.Pools = append(pool.Spec.Pools, ipamv1.Pool{Start: new(ipamv1.IPAddressStr("192.0.2.40")), End: new(ipamv1.IPAddressStr("192.0.2.40"))})
	started := time.Now()
	if err := s.client.Patch(ctx, pool, client.MergeFrom(before)); err != nil {
		return "", fmt.Errorf("growing a pool: %w", err)
	}
	if err := s.untilClaims(ctx, tinyPool, func(claims []ipamv1.IPClaim) bool { return !slices.ContainsFunc(claims, hasNoAddress) }); err != nil {
		return "", err
	}
	took := time.Since(started)
	if err := s.printAddresses(ctx, tinyPool); err != nil {
		return "", err
	}
	return fmt.Sprintf("the claim that waited has it after %d ms", took.Milliseconds()), nil
}

func hasNoAddress(claim ipamv1.IPClaim) bool { return claim.Status.Address == nil }

// claimsOf are the claims of a pool, by name.
func (s *stage) claimsOf(ctx context.Context, pool string) ([]ipamv1.IPClaim, error) {
	list := &ipamv1.IPClaimList{}
	if err := s.client.List(ctx, list, client.InNamespace(addressNamespace)); err != nil {
		return nil, fmt.Errorf("listing the claims: %w", err)
	}
	claims := slices.DeleteFunc(list.Items, func(claim ipamv1.IPClaim) bool { return claim.Spec.Pool.Name != pool })
	slices.SortFunc(claims, func(a, b ipamv1.IPClaim) int { return strings.Compare(a.Name, b.Name) })
	return claims, nil
}

// untilClaims waits until the claims of a pool are as they should be, and draws them meanwhile. An error says what those wait for that have no address.
func (s *stage) untilClaims(ctx context.Context, pool string, ok func([]ipamv1.IPClaim) bool) error {
	var seen []ipamv1.IPClaim
	err := s.until(ctx, addressing, func(ctx context.Context) (bool, error) {
		claims, err := s.claimsOf(ctx, pool)
		if err != nil {
			return false, err
		}
		seen = claims
		s.screen.show(addressTable(s.screen.paint, claims))
		return ok(claims), nil
	})
	if waiting := waitingFor(seen); err != nil && waiting != "" {
		return fmt.Errorf("%w; %s", err, waiting)
	}
	return err
}

// waitingFor says of claims without an address why they have none.
func waitingFor(claims []ipamv1.IPClaim) string {
	var said []string
	for i := range claims {
		if !hasNoAddress(claims[i]) {
			continue
		}
		why := "ipam-operator has not looked at it"
		if ready := meta.FindStatusCondition(claims[i].Status.Conditions, ipamv1.ReadyCondition); ready != nil {
			why = ready.Message
		}
		said = append(said, fmt.Sprintf("the claim %s has no address: %s", claims[i].Name, why))
	}
	return strings.Join(said, "; ")
}

// printAddresses leaves the claims of a pool on the screen.
func (s *stage) printAddresses(ctx context.Context, pool string) error {
	claims, err := s.claimsOf(ctx, pool)
	if err != nil {
		return err
	}
	s.screen.show(nil)
	for _, line := range addressTable(func(_, text string) string { return text }, claims) {
		s.screen.say("  " + line)
	}
	return nil
}

// addressTable draws claims.
func addressTable(paint func(color, text string) string, claims []ipamv1.IPClaim) []string {
	var rows [][]string
	for i := range claims {
		c := &claims[i]
		address, summary := "-", "-"
		if c.Status.Address != nil {
			address = c.Status.Address.Name
		}
		if ready := meta.FindStatusCondition(c.Status.Conditions, ipamv1.ReadyCondition); ready != nil {
			summary = ready.Reason
		}
		rows = append(rows, []string{c.Name, c.Spec.Pool.Name, address, summary})
	}
	return grid(paint, []string{"CLAIM", "POOL", "ADDRESS", "STATE"}, rows)
}
