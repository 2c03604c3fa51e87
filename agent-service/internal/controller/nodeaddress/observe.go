// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeaddress

import (
	"context"
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-io/muster/agent-service/internal/addressplan"
	"github.com/muster-io/muster/agent-service/internal/controller/agent"
	"github.com/muster-io/muster/agent-service/internal/controller/infraenv"
	"github.com/muster-io/muster/agent-service/internal/domain"
	"github.com/muster-io/muster/agent-service/internal/hardware"
	agentv1 "github.com/muster-io/muster/apis/agentinstall/v1beta1"
)

// claims are those that say that they are for an Agent.
func (r *Reconciler) claims(ctx context.Context, key client.ObjectKey) ([]claim, error) {
	var found []claim
	for _, kind := range r.Kinds {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(kind.Claim)
		if err := r.Claims.List(ctx, list, client.InNamespace(key.Namespace), client.MatchingLabels{agentv1.ClaimOwnerLabel: key.Name}); err != nil {
			return nil, fmt.Errorf("listing %ss of Agent %s: %w", kind.Claim.Kind, key, err)
		}
		for i := range list.Items {
			found = append(found, claim{&list.Items[i], kind})
		}
	}
	return found, nil
}

// observe reads what is known of the addresses of an Agent; nil where its InfraEnv does not vouch for it.
func (r *Reconciler) observe(ctx context.Context, owner *agentv1.Agent, found []claim) (*addressplan.Snapshot, error) {
	key := agent.HostKey(owner)
	var infraEnvs agentv1.InfraEnvList
	if err := r.Client.List(ctx, &infraEnvs, client.InNamespace(owner.Namespace), client.MatchingFields{infraenv.UIDIndex: key.InfraEnvID}); err != nil {
		return nil, fmt.Errorf("looking for the InfraEnv of Agent %s/%s: %w", owner.Namespace, owner.Name, err)
	}
	if len(infraEnvs.Items) == 0 {
		return nil, nil
	}
	host, err := r.Service.GetHost(ctx, domain.Kubernetes, key)
	if domain.KindOf(err) == domain.NotFound {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading host %s: %w", key, err)
	}
	spec := infraEnvs.Items[0].Spec
	seen := &addressplan.Snapshot{Agent: owner.Name, Host: host, Pools: infraenv.Pools(spec), Stated: len(spec.NMStateConfigLabelSelector.MatchLabels)+len(spec.NMStateConfigLabelSelector.MatchExpressions) > 0}
	if len(seen.Pools) == 0 && len(found) == 0 && len(host.Addressing.Pools) == 0 {
		return nil, nil
	}
	for _, c := range found {
		read, err := c.kind.understand(ctx, r.Live, owner, c.Unstructured)
		if err != nil {
			return nil, err
		}
		seen.Claims = append(seen.Claims, read)
	}
	if host.ReleaseMoved() && len(found) > 0 {
		if seen.Elsewhere, err = r.elsewhere(ctx, owner.Namespace, host); err != nil {
			return nil, err
		}
	}
	return seen, r.cards(ctx, seen)
}

// elsewhere is true while the same machine is being released as a host of another InfraEnv of the namespace.
func (r *Reconciler) elsewhere(ctx context.Context, namespace string, of *domain.Host) (bool, error) {
	same, err := r.Service.ListHosts(ctx, domain.Kubernetes, domain.HostFilter{HostID: of.HostID})
	if err != nil {
		return false, fmt.Errorf("listing the hosts of the machine of host %s: %w", of.HostKey, err)
	}
	for i := range same.Items {
		if !same.Items[i].Release.Underway() {
			continue
		}
		var infraEnvs agentv1.InfraEnvList
		if err := r.Client.List(ctx, &infraEnvs, client.InNamespace(namespace), client.MatchingFields{infraenv.UIDIndex: same.Items[i].InfraEnvID}, client.UnsafeDisableDeepCopy); err != nil {
			return false, fmt.Errorf("looking for the InfraEnv of host %s: %w", same.Items[i].HostKey, err)
		}
		if len(infraEnvs.Items) > 0 {
			return true, nil
		}
	}
	return false, nil
}

func (r *Reconciler) cards(ctx context.Context, seen *addressplan.Snapshot) error {
	reported, err := r.Service.Inventory(ctx, domain.Kubernetes, seen.Host.HostKey)
	if err != nil && domain.KindOf(err) != domain.NotFound {
		return fmt.Errorf("reading the inventory of host %s: %w", seen.Host.HostKey, err)
	}
	var inventory hardware.Inventory
	if len(reported) > 0 && json.Unmarshal(reported, &inventory) != nil {
		return fmt.Errorf("the inventory of host %s cannot be read", seen.Host.HostKey)
	}
	seen.Cards = inventory.Interfaces
	return nil
}
