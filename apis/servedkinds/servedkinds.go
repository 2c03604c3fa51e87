// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package servedkinds waits until the API server serves the kinds that a program reconciles, with the fields that it writes. An operator may be
// installed before its CustomResourceDefinitions, may restart while a set of them is missing, and may be upgraded before them, as by Helm, which
// upgrades none.
package servedkinds

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
)

const (
	// interval is how often the API server is asked while kinds are missing.
	interval = 2 * time.Second
	// headerTimeout bounds a request to the probes.
	headerTimeout = 5 * time.Second
)

// Set is a set of CustomResourceDefinitions that are installed together. It is the name of a directory of deploy/crds.
type Set string

// The sets that operators need. Others are optional, or are looked for while the operator runs.
const (
	AgentService      Set = "agent-service"
	Clusters          Set = "clusters"
	DiscoveryOperator Set = "discovery-operator"
	Hosts             Set = "hosts"
	// ManagedHosts is the set hosts for an operator that manages them: it writes all of their status, and no other system brings their definitions.
	ManagedHosts Set = "hosts/managed"
	IPAMOperator Set = "ipam-operator"
	NetworkData  Set = "network-data"
	PoolOperator Set = "pool-operator"
)

// kinds are those of a set, each in the version that operators ask for.
var kinds = map[Set][]schema.GroupVersionKind{
	AgentService: append(
		// AgentReservation is optional: agent-service looks for it while it runs.
		of("agent-install.openshift.io", "v1beta1", "Agent", "AgentClassification", "InfraEnv", "NMStateConfig"),
		of("extensions.hive.openshift.io", "v1beta1", "AgentClusterInstall")...,
	),
	Clusters:          of("hive.openshift.io", "v1", "ClusterDeployment", "ClusterImageSet"),
	DiscoveryOperator: of("metal3.io", "v1alpha1", "BareMetalHostDiscovery", "DiscoveredMachine"),
	Hosts:             of("metal3.io", "v1alpha1", "BareMetalHost", "HardwareData"),
	ManagedHosts:      of("metal3.io", "v1alpha1", "BareMetalHost", "HardwareData"),
	IPAMOperator:      of("ipam.metal3.io", "v1alpha1", "IPAddress", "IPClaim", "IPPool"),
	NetworkData:       of("infrastructure.cluster.x-k8s.io", "v1beta1", "Metal3Data", "Metal3DataClaim", "Metal3DataTemplate"),
	PoolOperator:      of("hive.openshift.io", "v1", "ClusterClaim", "ClusterPool"),
}

func of(group, version string, names ...string) []schema.GroupVersionKind {
	out := make([]schema.GroupVersionKind, 0, len(names))
	for _, name := range names {
		out = append(out, schema.GroupVersionKind{Group: group, Version: version, Kind: name})
	}
	return out
}

// directory is where the definitions of a set are.
func (s Set) directory() string {
	name, _, _ := strings.Cut(string(s), "/")
	return "deploy/crds/" + name
}

// Kinds returns the kinds of a set, each in the version that operators ask for.
func (s Set) Kinds() []schema.GroupVersionKind { return slices.Clone(kinds[s]) }

// Wait returns when the API server serves all kinds of the sets with the fields of [written], with an error when it cannot be asked, or when ctx
// ends. While kinds or fields are missing it logs which, and which sets to apply, and answers at the address of the probes, which is host:port, ""
// or "0" for none: the program is alive, and not ready, so that a rolling update keeps the version that works.
func Wait(ctx context.Context, config *rest.Config, log logr.Logger, probes string, sets ...Set) error {
	api, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return fmt.Errorf("preparing to look for kinds: %w", err)
	}
	look := looker{api: api, fields: fieldLooker{api: api.RESTClient(), log: log}}
	lacks, err := look.missing(ctx, sets)
	if err != nil || len(lacks) == 0 {
		return err
	}
	stop, err := serveProbes(ctx, probes)
	if err != nil {
		return err
	}
	defer stop()
	said := ""
	return wait.PollUntilContextCancel(ctx, interval, true, func(ctx context.Context) (bool, error) {
		if lacks, err = look.missing(ctx, sets); err != nil {
			return false, err
		}
		if now := lacks.kinds(); now != said && now != "" {
			log.Info(lacks.sentence(), "kinds", now, "sets", lacks.sets())
			said = now
		}
		return len(lacks) == 0, nil
	})
}

// lack is a kind that is not served, or is served without fields, and the set that holds it.
type lack struct {
	kind   schema.GroupVersionKind
	set    Set
	fields []string
}

type lackList []lack

func (l lackList) kinds() string {
	names := make([]string, 0, len(l))
	for _, one := range l {
		name := one.kind.Kind + "." + one.kind.Version + "." + one.kind.Group
		if len(one.fields) > 0 {
			name += " without " + strings.Join(one.fields, " ")
		}
		names = append(names, name)
	}
	return strings.Join(names, ", ")
}

// sentence is what is logged. Fields are looked for only where all kinds are served.
func (l lackList) sentence() string {
	if len(l) > 0 && len(l[0].fields) > 0 {
		return "the kinds in the cluster are older than this operator and lack fields that it writes: apply the sets of its version, this waits"
	}
	return "the API server does not serve kinds that are needed: apply the sets that hold them, this waits"
}

func (l lackList) sets() string {
	var names []string
	for _, one := range l {
		if name := one.set.directory(); !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return strings.Join(names, ", ")
}

// looker looks for kinds and their fields.
type looker struct {
	api    discovery.ServerResourcesInterface
	fields fieldLooker
}

// missing returns the kinds of the sets that the API server does not serve; or else those that it serves without fields that are written.
func (l *looker) missing(ctx context.Context, sets []Set) (lackList, error) {
	lacks, err := missing(l.api, sets)
	if err != nil || len(lacks) > 0 {
		return lacks, err
	}
	return l.fields.missing(ctx, sets), nil
}

// missing returns the kinds of the sets that the API server does not serve. Discovery is open to every account.
func missing(api discovery.ServerResourcesInterface, sets []Set) (lackList, error) {
	served := map[schema.GroupVersion]*metav1.APIResourceList{}
	var out lackList
	for _, set := range sets {
		for _, kind := range kinds[set] {
			version := kind.GroupVersion()
			if _, asked := served[version]; !asked {
				list, err := api.ServerResourcesForGroupVersion(version.String())
				if err != nil && !apierrors.IsNotFound(err) {
					return nil, fmt.Errorf("looking for the kinds of %s: %w", version, err)
				}
				served[version] = list
			}
			if !has(served[version], kind.Kind) {
				out = append(out, lack{kind: kind, set: set})
			}
		}
	}
	return out, nil
}

func has(list *metav1.APIResourceList, kind string) bool {
	return list != nil && slices.ContainsFunc(list.APIResources, func(r metav1.APIResource) bool { return r.Kind == kind })
}

// serveProbes answers /healthz with 200 and everything else with 503 until stop is called.
func serveProbes(ctx context.Context, address string) (stop func(), err error) {
	if address == "" || address == "0" {
		return func() {}, nil
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("listening for probes: %w", err)
	}
	server := &http.Server{ReadHeaderTimeout: headerTimeout, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/healthz" {
			http.Error(w, "kinds or fields are missing: see the log", http.StatusServiceUnavailable)
		}
	})}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			logr.FromContextOrDiscard(ctx).Error(err, "probes were not served")
		}
	}()
	return func() {
		_ = server.Close()
		<-ended
	}, nil
}
