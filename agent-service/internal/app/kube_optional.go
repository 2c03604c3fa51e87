// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/muster-io/muster/agent-service/internal/controller/agentreservation"
	"github.com/muster-io/muster/agent-service/internal/controller/baremetalhost"
	"github.com/muster-io/muster/agent-service/internal/controller/clusterpower"
	"github.com/muster-io/muster/agent-service/internal/controller/machinepool"
	"github.com/muster-io/muster/agent-service/internal/controller/nodeaddress"
	"github.com/muster-io/muster/agent-service/internal/controller/nodes"
	"github.com/muster-io/muster/agent-service/internal/hostplan"
	agentv1 "github.com/muster-io/muster/apis/agentinstall/v1beta1"
	hivev1 "github.com/muster-io/muster/apis/hive/v1"
	metal3v1 "github.com/muster-io/muster/apis/metal3/v1alpha1"
)

// lookForKinds is how often the API server is asked for optional kinds that it does not serve.
const lookForKinds = time.Minute

var errKindServed = errors.New("a kind is served that was not")

// addOptional adds the controllers of kinds that come with another operator, or with a set of CustomResourceDefinitions of their own, or that no system but Muster has. While one of them is
// not served, it is looked for; when it is served, all controllers end, and start again with it.
func (k *kube) addOptional(ctx context.Context, mgr ctrl.Manager, joining *nodes.Reconciler) error {
	absent, err := k.addNodeAddresses(mgr)
	if err != nil {
		return err
	}
	for kind, add := range map[schema.GroupVersionKind]func() error{
		metal3v1.GroupVersion.WithKind("BareMetalHost"):   func() error { return k.addBareMetalHosts(ctx, mgr, joining) },
		hivev1.GroupVersion.WithKind("MachinePool"):       func() error { return k.addMachinePools(ctx, mgr, joining) },
		agentv1.GroupVersion.WithKind("AgentReservation"): func() error { return k.addAgentReservations(mgr) },
	} {
		there, err := served(mgr, kind)
		switch {
		case err != nil:
			return err
		case !there:
			k.log.Info("an optional kind is not served; it is looked for once a minute", zap.Stringer("kind", kind))
			absent = append(absent, kind)
		default:
			if err := add(); err != nil {
				return fmt.Errorf("adding the controller of %s: %w", kind.Kind, err)
			}
		}
	}
	if len(absent) == 0 {
		return nil
	}
	return mgr.Add(manager.RunnableFunc(func(ctx context.Context) error {
		for pause(ctx, lookForKinds) {
			for _, kind := range absent {
				if there, _ := served(mgr, kind); there {
					return fmt.Errorf("%w: %s", errKindServed, kind)
				}
			}
		}
		return nil
	}))
}

func served(mgr ctrl.Manager, kind schema.GroupVersionKind) (bool, error) {
	_, err := mgr.GetRESTMapper().RESTMapping(kind.GroupKind(), kind.Version)
	if meta.IsNoMatchError(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("looking for the kind %s: %w", kind, err)
	}
	return true, nil
}

// addNodeAddresses adds the controller of addresses, with the kinds of claims that are served; it returns the others.
func (k *kube) addNodeAddresses(mgr ctrl.Manager) (absent []schema.GroupVersionKind, err error) {
	claims, err := nodeaddress.NewClaims(mgr)
	if err != nil {
		return nil, err
	}
	deps := nodeaddress.Deps{Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Claims: claims, Service: k.service, LookInterval: k.options.lookInterval}
	for kind, of := range map[schema.GroupKind]func(version string) nodeaddress.Kind{
		nodeaddress.IPClaims().Claim.GroupKind(): func(string) nodeaddress.Kind { return nodeaddress.IPClaims() },
		nodeaddress.Contract:                     nodeaddress.IPAddressClaims,
	} {
		mapping, err := mgr.GetRESTMapper().RESTMapping(kind)
		switch {
		case meta.IsNoMatchError(err):
			absent = append(absent, kind.WithVersion(""))
		case err != nil:
			return nil, fmt.Errorf("looking for the kind %s: %w", kind, err)
		default:
			deps.Kinds = append(deps.Kinds, of(mapping.GroupVersionKind.Version))
		}
	}
	if err := nodeaddress.New(deps).SetupWithManager(mgr); err != nil {
		return nil, fmt.Errorf("adding the controller of addresses: %w", err)
	}
	return absent, nil
}

func (k *kube) addBareMetalHosts(ctx context.Context, mgr ctrl.Manager, joining *nodes.Reconciler) error {
	if err := baremetalhost.Index(ctx, mgr.GetFieldIndexer()); err != nil {
		return err
	}
	if err := clusterpower.Index(ctx, mgr.GetFieldIndexer()); err != nil {
		return err
	}
	power := clusterpower.New(clusterpower.Deps{Client: mgr.GetClient(), Nodes: joining, Service: k.service, Order: k.order, Clock: clock.RealClock{}})
	if err := power.SetupWithManager(mgr, joining.Changes()); err != nil {
		return err
	}
	return baremetalhost.New(baremetalhost.Deps{Client: mgr.GetClient(), Recorder: mgr.GetEventRecorder("agent-service")}).SetupWithManager(mgr)
}

func (k *kube) addAgentReservations(mgr ctrl.Manager) error {
	return agentreservation.New(agentreservation.Deps{
		Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Service: k.service, Recorder: mgr.GetEventRecorder("agent-service"), Clock: clock.RealClock{},
	}).SetupWithManager(mgr)
}

func (k *kube) addMachinePools(ctx context.Context, mgr ctrl.Manager, joining *nodes.Reconciler) error {
	if err := machinepool.Index(ctx, mgr.GetFieldIndexer()); err != nil {
		return err
	}
	return machinepool.New(machinepool.Deps{
		Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Nodes: joining, Service: k.service, Rules: &hostplan.Rules{OSImages: k.service.OSImages},
		Recorder: mgr.GetEventRecorder("agent-service"), Order: k.order, Clock: clock.RealClock{},
	}).SetupWithManager(mgr, joining.Changes())
}
