// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/muster-io/muster/agent-service/internal/domain"
	agentv1 "github.com/muster-io/muster/apis/agentinstall/v1beta1"
)

// addressed is the condition AddressesAssigned of a host that gets, or has, addresses of pools; none for others.
func addressed(h *domain.Host) []agentv1.Condition {
	const kind = agentv1.ConditionAddressesAssigned
	a := h.Addressing
	switch {
	case len(a.Pools) == 0:
		return nil
	case a.Waits():
		return []agentv1.Condition{condition(kind, corev1.ConditionFalse, agentv1.ReasonAddressesMissing, "The machine is not installed yet: "+a.Why())}
	case a.Missing != "":
		return []agentv1.Condition{condition(kind, corev1.ConditionFalse, agentv1.ReasonAddressesMissing, a.Missing)}
	}
	var given []string
	for _, one := range a.Given {
		given = append(given, fmt.Sprintf("%s of %s", one.Address, one.Pool))
	}
	message := "The machine has " + strings.Join(given, " and ")
	if h.Release.Underway() {
		message += " until it has booted the discovery image and is wiped"
	}
	return []agentv1.Condition{condition(kind, corev1.ConditionTrue, agentv1.ReasonAddressesAssigned, message)}
}

// addresses are those that the machine has of pools.
func addresses(h *domain.Host) (said []agentv1.NodeAddress) {
	for _, given := range h.Addressing.Given {
		one := agentv1.NodeAddress{Pool: bound(given.Pool.String(), 320), Address: given.Address.String(), Interface: bound(given.Interface, 64)}
		for _, server := range cut(given.DNS, 64) {
			one.DNSServers = append(one.DNSServers, server.String())
		}
		if given.Gateway.IsValid() {
			one.Gateway = given.Gateway.String()
		}
		said = append(said, one)
	}
	return said
}
