// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"context"
	"errors"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"

	ipamv1 "github.com/muster-io/muster/apis/ipam/v1alpha1"
)

// faults are contradictions between claims and addresses, as the API server has them.
type faults struct {
	// served claims name an address that belongs to them.
	served int
	// duplicates are addresses beyond the first of a claim, and claims beyond the first of an address.
	duplicates int
	// leaked addresses belong to a claim that is not there.
	leaked int
	// dangling claims name an address that is not there or belongs to another claim.
	dangling int
}

// look reads all claims and addresses.
func (w *testEnv) look(ctx context.Context) (faults, error) {
	claims, addresses := &ipamv1.IPClaimList{}, &ipamv1.IPAddressList{}
	in := client.InNamespace(namespace)
	if err := errors.Join(w.user.List(ctx, claims, in), w.user.List(ctx, addresses, in)); err != nil {
		return faults{}, fmt.Errorf("listing claims and addresses: %w", err)
	}
	var f faults
	there := map[string]bool{}
	for i := range claims.Items {
		there[claims.Items[i].Name] = true
	}
	byName, ips, holders := map[string]*ipamv1.IPAddress{}, map[string]bool{}, map[string]bool{}
	for i := range addresses.Items {
		address := &addresses.Items[i]
		byName[address.Name] = address
		slot := address.Spec.Pool.Name + " " + string(address.Spec.Address)
		if ips[slot] || holders[address.Spec.Claim.Name] {
			f.duplicates++
		}
		ips[slot], holders[address.Spec.Claim.Name] = true, true
		if !there[address.Spec.Claim.Name] {
			f.leaked++
		}
	}
	named := map[string]bool{}
	for i := range claims.Items {
		claim := &claims.Items[i]
		if claim.Status.Address == nil {
			continue
		}
		address := byName[claim.Status.Address.Name]
		switch {
		case named[claim.Status.Address.Name]:
			f.duplicates++
		case address == nil || address.Spec.Claim.Name != claim.Name:
			f.dangling++
		default:
			f.served++
		}
		named[claim.Status.Address.Name] = true
	}
	return f, nil
}

// verifyServed checks that so many claims have an address of their own, and that nothing else has one.
func (w *testEnv) verifyServed(ctx context.Context, want int) error {
	f, err := w.look(ctx)
	if err != nil {
		return err
	}
	w.Figure("duplicates", float64(f.duplicates), "addresses", 0)
	if f != (faults{served: want}) {
		return fmt.Errorf("%d claims are served, wanted %d; duplicates %d, leaked %d, dangling %d", f.served, want, f.duplicates, f.leaked, f.dangling)
	}
	w.Asserted("%d claims served, each with an IPAddress of its own that names it; no address twice, none without a claim", want)
	return nil
}
