// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package admission refuses a second BareMetalHost of one boot MAC, whoever creates it. It looks into the cache and is a help for
// people; that discovery makes no second host rests on reservations and not on this.
package admission

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	metal3v1 "github.com/muster-io/muster/apis/metal3/v1alpha1"
)

// Path is where the check is served.
const Path = "/validate-metal3-io-v1alpha1-baremetalhost"

// macIndex finds hosts by their boot MAC in lower case.
const macIndex = "bootMAC"

// Hosts checks BareMetalHosts.
type Hosts struct {
	// Reader reads from a cache that was indexed with Index.
	Reader  client.Reader
	Decoder admission.Decoder
}

// Index makes a cache find hosts by boot MAC.
func Index(ctx context.Context, indexer client.FieldIndexer) error {
	err := indexer.IndexField(ctx, &metal3v1.BareMetalHost{}, macIndex, func(o client.Object) []string {
		if host, ok := o.(*metal3v1.BareMetalHost); ok && host.Spec.BootMACAddress != "" {
			return []string{strings.ToLower(host.Spec.BootMACAddress)}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("indexing hosts by boot MAC: %w", err)
	}
	return nil
}

// Handle refuses a host whose boot MAC another one has, on creation and when it is set. Hosts that share one already can still be
// changed and deleted.
func (h *Hosts) Handle(ctx context.Context, req admission.Request) admission.Response {
	var host metal3v1.BareMetalHost
	if err := h.Decoder.Decode(req, &host); err != nil {
		return admission.Errored(http.StatusBadRequest, err)
	}
	mac := strings.ToLower(host.Spec.BootMACAddress)
	if mac == "" || req.Operation == admissionv1.Update && h.had(req, mac) {
		return admission.Allowed("")
	}
	var list metal3v1.BareMetalHostList
	if err := h.Reader.List(ctx, &list, client.MatchingFields{macIndex: mac}); err != nil {
		return admission.Errored(http.StatusInternalServerError, err)
	}
	for i := range list.Items {
		if other := &list.Items[i]; other.Namespace != req.Namespace || other.Name != req.Name {
			return admission.Denied(fmt.Sprintf(
				"spec.bootMACAddress %s belongs to host %s/%s already: delete that one first, or give this one the MAC of another interface",
				mac, other.Namespace, other.Name))
		}
	}
	return admission.Allowed("")
}

// had reports whether the host had the boot MAC before the change.
func (h *Hosts) had(req admission.Request, mac string) bool {
	var before metal3v1.BareMetalHost
	return h.Decoder.DecodeRaw(req.OldObject, &before) == nil && strings.EqualFold(before.Spec.BootMACAddress, mac)
}
