// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package service

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/muster-io/muster/agent-service/internal/agentproto"
	"github.com/muster-io/muster/agent-service/internal/domain"
	"github.com/muster-io/muster/agent-service/internal/hardware"
	"github.com/muster-io/muster/agent-service/internal/nmstate"
)

// network is what an InfraEnv states for one host, for its installed system.
type network struct {
	// profiles are of NetworkManager, by the names of their files; config is the network-config of cloud-init.
	profiles map[string]string
	config   string
	// ignored says why a part of it, or all, is not used; empty where nothing is left out.
	ignored string
}

// networkOf is empty for a host that nothing is stated for.
func networkOf(ctx context.Context, r Reader, e *domain.InfraEnv, key domain.HostKey, image agentproto.OSImage) (n network, err error) {
	if len(e.StaticNetworkConfig) == 0 {
		return n, nil
	}
	inventory, err := r.Inventory(ctx, key)
	if err != nil {
		return n, err
	}
	cards, err := cardsOf(inventory)
	if err != nil {
		return n, fmt.Errorf("reading the inventory of host %s: %w", key, err)
	}
	statements, err := nmstate.Read(e.StaticNetworkConfig)
	if err != nil {
		return n, err
	}
	stated := nmstate.For(statements, cards)
	if stated == nil {
		return n, nil
	}
	profiles, unusable := stated.Keyfiles()
	n.profiles = profiles.Files
	left := profiles.Ignored
	if image.FirstBoot == cloudInit && unusable == nil {
		n.config, left, unusable = stated.Netplan()
	}
	switch {
	case unusable != nil:
		n = network{ignored: "it cannot be used: " + unusable.Error()}
	case len(left) > 0:
		n.ignored = "not understood and left out: " + strings.Join(left, ", ")
	}
	return n, nil
}

// networkConfig is empty where the image does not read it, or nothing is stated for the host.
func (s *Service) networkConfig(ctx context.Context, h *domain.Host, image agentproto.OSImage) (config string, err error) {
	if image.FirstBoot != cloudInit {
		return "", nil
	}
	e, err := s.knownInfraEnv(ctx, h.InfraEnvID)
	if err != nil || len(e.StaticNetworkConfig) == 0 {
		return "", err
	}
	err = s.view(ctx, func(ctx context.Context, r Reader) error {
		stated, err := networkOf(ctx, r, e, h.HostKey, image)
		config = stated.config
		return err
	})
	return config, err
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
