// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package firstboot

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/muster-io/muster/agent-service/internal/agentproto"
	"github.com/muster-io/muster/agent-service/internal/domain"
	"github.com/muster-io/muster/agent-service/internal/hardware"
	"github.com/muster-io/muster/agent-service/internal/nmstate"
)

// Network is what an InfraEnv states for one host, for its installed system.
type Network struct {
	// Profiles are of NetworkManager, by the names of their files.
	Profiles map[string]string
	// Config is the network-config of cloud-init, for systems that read it.
	Config string
	// Ignored says why a part of it, or all, is not used; empty where nothing is left out.
	Ignored string
}

// NetworkOf renders the network that is stated for the machine with an inventory, with the addresses that it has of pools. It is empty for a machine that has neither. An
// address that cannot be set up is an error: the machine must not be installed without it.
func NetworkOf(stated json.RawMessage, inventory []byte, image agentproto.OSImage, given []domain.NodeAddress) (n Network, err error) {
	if len(stated) == 0 && len(given) == 0 {
		return n, nil
	}
	cards, err := cardsOf(inventory)
	if err != nil {
		return n, fmt.Errorf("reading the inventory: %w", err)
	}
	var statements []nmstate.Statement
	if len(stated) > 0 {
		if statements, err = nmstate.Read(stated); err != nil {
			return n, err
		}
	}
	own := nmstate.For(statements, cards)
	if own == nil && len(given) == 0 {
		return n, nil
	}
	if own == nil {
		own = &nmstate.Statement{}
	}
	for _, a := range given {
		assigned, err := own.Assign(nmstate.Assigned{Interface: a.Interface, MAC: a.MAC, Address: a.Address, Gateway: a.Gateway, DNS: a.DNS})
		if err != nil {
			return n, domain.Refuse(domain.Conflict, "AddressUnusable", "the address %s of %s cannot be set up: %v", a.Address, a.Pool, err)
		}
		own = &assigned
	}
	profiles, unusable := own.Keyfiles()
	n.Profiles = profiles.Files
	left := profiles.Ignored
	if image.FirstBoot == CloudInit && unusable == nil {
		n.Config, left, unusable = own.Netplan()
	}
	switch {
	case unusable != nil && len(given) > 0:
		return Network{}, domain.Refuse(domain.Conflict, "AddressUnusable", "the network with the addresses of pools cannot be used: %v", unusable)
	case unusable != nil:
		n = Network{Ignored: "it cannot be used: " + unusable.Error()}
	case len(left) > 0:
		n.Ignored = "not understood and left out: " + strings.Join(left, ", ")
	}
	return n, nil
}

// cardsOf are the names of a machine's network cards by their addresses. Bridges, bonds and VLANs borrow addresses. A name is empty where several cards say that they have
// the address, as ports of a bond do to agents that do not ask for their own.
func cardsOf(inventory []byte) (map[string]string, error) {
	var found hardware.Inventory
	if len(inventory) > 0 {
		if err := json.Unmarshal(inventory, &found); err != nil {
			return nil, err
		}
	}
	cards := map[string]string{}
	for _, i := range found.Interfaces {
		address := strings.ToLower(i.MACAddress)
		if address == "" || i.Type != "" && i.Type != "physical" {
			continue
		}
		if _, twice := cards[address]; twice {
			i.Name = ""
		}
		cards[address] = i.Name
	}
	return cards, nil
}
