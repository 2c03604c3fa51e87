// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package hoststate

import (
	metal3v1 "github.com/muster-io/muster/apis/metal3/v1alpha1"
	"github.com/muster-io/muster/discovery-operator/internal/inventory"
)

// Provision states of an adoption: Ironic takes a machine for deployed without writing to it, or has failed to.
const (
	Adopting    = "adopting"
	AdoptFailed = "adopt failed"
)

// AskAdopt asks for an adoption.
const AskAdopt = "adopt"

// AskedAdopt says that an adoption was asked for.
const AskedAdopt Asked = "adopt"

// AdoptionTask says what is next for the node of a machine that is deployed. A node that was made anew, because Ironic lost the one before, gets the instance_info of what is
// deployed and adopts the machine; nothing is written to the machine. All other nodes are accepted.
func AdoptionTask(n Node, d Deployment, p Past) Task {
	switch {
	case n.State == Adopting:
		return Task{Do: Await, Reason: metal3v1.ReasonAdopting, Why: "Ironic adopts the machine as it is."}
	case n.State == inventory.NodeEnroll && !n.Busy(): // it was made anew, and its management controller did not answer then
		return p.manage(n)
	case n.State == AdoptFailed && (p.Asked == AskedAdopt || !p.Reported):
		return refusal(metal3v1.ReasonAdoptionFailed, n.LastError)
	case n.Busy(), n.State != inventory.NodeManageable && n.State != AdoptFailed:
		return Task{Do: Accept}
	case d.former(n):
		return Task{Do: Vacate}
	case n.Instance != "" && n.Instance != d.Instance:
		return refusal(metal3v1.ReasonAdoptionFailed, "the node is occupied by instance "+n.Instance+", which is not this host's")
	case !d.prepared(n):
		return Task{Do: Prepare}
	default:
		return Task{Do: Ask, Ask: AskAdopt}
	}
}
