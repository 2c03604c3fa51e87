// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package admission refuses a second BareMetalHost of one boot MAC or management controller, from any client, and a host whose machine Ironic has
// discovered with a driver that reaches no management controller. It reserves the boot MAC of each admitted host by the same rule as discovery, so that two
// requests at the same moment cannot both be admitted, and records which user approves a host. Discovery makes no second host without it, either.
package admission

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/go-logr/logr"
	admissionv1 "k8s.io/api/admission/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	metal3v1 "github.com/muster-io/muster/apis/metal3/v1alpha1"
	"github.com/muster-io/muster/discovery-operator/internal/handover"
	"github.com/muster-io/muster/discovery-operator/internal/inventory"
	"github.com/muster-io/muster/discovery-operator/internal/reservation"
	"github.com/muster-io/muster/discovery-operator/internal/reserve"
)

// Path is where the check is served.
const Path = "/validate-metal3-io-v1alpha1-baremetalhost"

// Names of what the check needs in the cluster. The Service is in the operator's namespace, and a Secret of its name has the certificate.
const (
	ConfigurationName = "baremetalhosts.discovery.muster.io"
	ServiceName       = "discovery-operator-webhook"
)

// +kubebuilder:rbac:groups=admissionregistration.k8s.io,resources=validatingwebhookconfigurations,resourceNames=baremetalhosts.discovery.muster.io,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups="",namespace=muster-discovery-operator,resources=secrets,verbs=create
// +kubebuilder:rbac:groups="",namespace=muster-discovery-operator,resources=secrets,resourceNames=discovery-operator-webhook,verbs=get;update

// Indexes that find hosts: by a MAC of any of their interfaces, and by what identifies their management controller.
const (
	macIndex = "mac"
	bmcIndex = "bmc"
)

// askTime bounds the question to Ironic, which a request waits for.
const askTime = 2 * time.Second

// Nodes finds what Ironics know of a machine.
type Nodes interface {
	// Discovered returns the nodes that have a port with a MAC, of the Ironics whose word counts for hosts of a namespace. It leaves out Ironics that do
	// not answer before the context ends.
	Discovered(ctx context.Context, namespace, mac string) []inventory.Node
}

// Hosts checks BareMetalHosts.
type Hosts struct {
	// Reader reads from a cache that was indexed with Index.
	Reader  client.Reader
	Decoder admission.Decoder
	// Reserver reserves what is admitted.
	Reserver reserve.Reserver
	// Nodes is nil where this operator manages hosts and switches drivers itself.
	Nodes Nodes
}

// Index makes a cache find hosts by MAC and management controller.
func Index(ctx context.Context, indexer client.FieldIndexer) error {
	for field, keys := range map[string]func(*metal3v1.BareMetalHost) []string{macIndex: macs, bmcIndex: controllers} {
		err := indexer.IndexField(ctx, &metal3v1.BareMetalHost{}, field, func(o client.Object) []string {
			if host, ok := o.(*metal3v1.BareMetalHost); ok {
				return keys(host)
			}
			return nil
		})
		if err != nil {
			return fmt.Errorf("indexing hosts by %s: %w", field, err)
		}
	}
	return nil
}

func macs(h *metal3v1.BareMetalHost) []string {
	known := map[string]bool{}
	var out []string
	for _, mac := range append(h.MACAddresses(), h.Spec.BootMACAddress) {
		if mac = strings.ToLower(mac); mac != "" && !known[mac] {
			known[mac] = true
			out = append(out, mac)
		}
	}
	return out
}

// controllers are the management controller that a host names, and without one the host of that which its machine reported.
func controllers(h *metal3v1.BareMetalHost) []string {
	if address := address(h); address != "" {
		if key := inventory.BMCKey(address); key != "" {
			return []string{key}
		}
		return nil
	}
	if ip := inventory.NormalBMC(h.Annotations[metal3v1.BMCAnnotation]); ip != "" {
		return []string{"reported " + ip}
	}
	return nil
}

func address(h *metal3v1.BareMetalHost) string {
	if h.Spec.BMC == nil {
		return ""
	}
	return h.Spec.BMC.Address
}

// Handle refuses a host whose boot MAC or management controller another one has, on creation and when it is set. Hosts that share one already can still
// be changed and deleted.
func (h *Hosts) Handle(ctx context.Context, req admission.Request) admission.Response {
	var host, before metal3v1.BareMetalHost
	if err := h.Decoder.Decode(req, &host); err != nil {
		return admission.Errored(http.StatusBadRequest, err)
	}
	if req.Operation == admissionv1.Update {
		if err := h.Decoder.DecodeRaw(req.OldObject, &before); err != nil {
			return admission.Errored(http.StatusBadRequest, err)
		}
	}
	host.Namespace, host.Name = req.Namespace, req.Name
	if req.DryRun == nil || !*req.DryRun {
		h.noteApproval(ctx, &before, &host, req.UserInfo.Username)
	}
	mac, bmc := strings.ToLower(host.Spec.BootMACAddress), inventory.BMCKey(address(&host))
	if strings.EqualFold(mac, before.Spec.BootMACAddress) {
		mac = ""
	}
	if bmc == inventory.BMCKey(address(&before)) {
		bmc = ""
	}
	why, err := h.refusal(ctx, &host, mac, bmc)
	if why == "" && err == nil && (mac != "" || bmc != "") {
		why = h.undriven(ctx, &host)
	}
	if why == "" && err == nil {
		why, err = h.reserve(ctx, &host, mac, bmc, req.DryRun != nil && *req.DryRun)
	}
	switch {
	case err != nil:
		return admission.Errored(http.StatusInternalServerError, err)
	case why != "":
		return admission.Denied(why)
	default:
		return admission.Allowed("")
	}
}

// noteApproval records which user approves a host. Discovery publishes it. Where it cannot be recorded, the host is approved all the same.
func (h *Hosts) noteApproval(ctx context.Context, before, host *metal3v1.BareMetalHost, user string) {
	approves := host.Labels[metal3v1.ApprovalLabel] == "pending" && host.Annotations[metal3v1.ApprovedAnnotation] == "true" &&
		before.Name != "" && before.Annotations[metal3v1.ApprovedAnnotation] != "true" && host.Spec.BootMACAddress != ""
	if !approves {
		return
	}
	self := inventory.Ref{Namespace: host.Namespace, Name: host.Name}
	if err := h.Reserver.Approve(ctx, self, strings.ToLower(host.Spec.BootMACAddress), user); err != nil {
		logr.FromContextOrDiscard(ctx).Info("approval not recorded", "BareMetalHost", self.String(), "why", err.Error())
	}
}

// refusal names the host that has a MAC or management controller already.
func (h *Hosts) refusal(ctx context.Context, host *metal3v1.BareMetalHost, mac, bmc string) (string, error) {
	other, err := h.other(ctx, host, macIndex, mac)
	if other != "" || err != nil {
		return fmt.Sprintf("spec.bootMACAddress %s belongs to host %s already: delete that one first, or give this one the MAC of another interface", mac, other), err
	}
	if other, err = h.other(ctx, host, bmcIndex, bmc); other == "" && err == nil && bmc != "" {
		if ip := inventory.NormalBMC(address(host)); ip != "" {
			other, err = h.other(ctx, host, bmcIndex, "reported "+ip)
		}
	}
	if other != "" || err != nil {
		return fmt.Sprintf("spec.bmc.address %s is the management controller of host %s already: give that host the credentials, or delete it first", bmc, other), err
	}
	return "", nil
}

// other is another host that has an identity, empty if there is none.
func (h *Hosts) other(ctx context.Context, host *metal3v1.BareMetalHost, index, value string) (string, error) {
	if value == "" {
		return "", nil
	}
	var list metal3v1.BareMetalHostList
	if err := h.Reader.List(ctx, &list, client.MatchingFields{index: value}); err != nil {
		return "", fmt.Errorf("looking for hosts with %s: %w", value, err)
	}
	for i := range list.Items {
		if o := &list.Items[i]; o.Namespace != host.Namespace || o.Name != host.Name {
			return o.Namespace + "/" + o.Name, nil
		}
	}
	return "", nil
}

// undriven says why another operator would manage the host without reaching its management controller: Ironic knows the machine as a node with the driver
// of discovery, which the other operator takes over as it is.
func (h *Hosts) undriven(ctx context.Context, host *metal3v1.BareMetalHost) string {
	driver, known := handover.Driver(address(host))
	if h.Nodes == nil || address(host) == "" || !known || host.Spec.BootMACAddress == "" ||
		host.Annotations[metal3v1.PausedAnnotation] == metal3v1.DiscoveryPausedValue {
		return ""
	}
	within, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	for _, n := range h.Nodes.Discovered(within, host.Namespace, strings.ToLower(host.Spec.BootMACAddress)) {
		if n.Driver != driver && n.Instance == "" && (n.Name == "" || n.Name == host.Namespace+"~"+host.Name) {
			return fmt.Sprintf("Ironic has discovered the machine with boot MAC %s already, as node %s with driver %s, which does not reach spec.bmc.address: "+
				"let a BareMetalHostDiscovery make its host, or give the node the driver %s in Ironic and reset its interfaces first",
				host.Spec.BootMACAddress, n.UUID, n.Driver, driver)
		}
	}
	return ""
}

// reserve takes the identities for the host, or says who has them.
func (h *Hosts) reserve(ctx context.Context, host *metal3v1.BareMetalHost, mac, bmc string, dry bool) (string, error) {
	self := inventory.Ref{Namespace: host.Namespace, Name: host.Name}
	take := h.Reserver.Take
	if dry {
		take = h.Reserver.Check
	}
	for _, wanted := range []reservation.Reservation{{MAC: mac}, {BMC: bmc}} {
		if wanted.MAC == "" && wanted.BMC == "" {
			continue
		}
		wanted.Host, wanted.OnDeletion, wanted.Renewed = self, reservation.Release, h.Reserver.Now()
		err := take(ctx, wanted)
		switch {
		case errors.Is(err, reserve.ErrReserved):
			return err.Error() + ": delete that one first", nil
		case errors.Is(err, reserve.ErrSoon):
			return err.Error() + ": try again in a minute, or create the host under that name", nil
		case err != nil:
			return "", err
		}
	}
	return "", nil
}
