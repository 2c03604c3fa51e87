// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-io/muster/agent-service/internal/controller/infraenv"
	"github.com/muster-io/muster/agent-service/internal/domain"
	"github.com/muster-io/muster/agent-service/internal/service"
	"github.com/muster-io/muster/agent-service/internal/validate"
	agentv1 "github.com/muster-io/muster/apis/agentinstall/v1beta1"
	hivev1 "github.com/muster-io/muster/apis/hive/v1"
	"github.com/muster-io/muster/apis/outcome"
)

// uuidLength is of the id of a host, with which the name of an Agent begins.
const uuidLength = 36

const infraEnvKind = "InfraEnv"

var errBehind = errors.New("the cache shows a former spec of the Agent")

// snapshot is all that is known of one host.
type snapshot struct {
	key domain.HostKey
	// infraEnv and agent are nil where there is none; without an InfraEnv nothing else is known. The InfraEnv is that of the cache: it is not to be changed.
	infraEnv *agentv1.InfraEnv
	agent    *agentv1.Agent
	// host is nil where the service does not know it.
	host *domain.Host
	// cluster is the one that the host is bound to, nil for none.
	cluster *domain.Cluster
	// moved is whether the host came from another cluster just now.
	moved bool
	// inventory is what the agent reported, empty before.
	inventory agentv1.HostInventory
	// minimums are what hosts need, by role.
	minimums validate.Minimums
	// classes are the AgentClassifications of the namespace, in the order of their names.
	classes []agentv1.AgentClassification
	// strangers are Agents that say the host is theirs, in namespaces that are not the InfraEnv's.
	strangers []*agentv1.Agent
	// waits is true while the cluster is not back that the host was installed in before the service lost its data.
	waits bool
	// soon is true while the InfraEnv of a lost host is not back either: nothing tells of that, and it takes seconds.
	soon bool
	// obstacle is why the spec is not applied, nil where it is.
	obstacle error
}

// HostKey is the host of an Agent: its name begins with the host's id, its owner is the InfraEnv.
func HostKey(agent client.Object) domain.HostKey {
	key := domain.HostKey{HostID: agent.GetName()[:min(len(agent.GetName()), uuidLength)]}
	for _, owner := range agent.GetOwnerReferences() {
		if owner.Kind == infraEnvKind {
			key.InfraEnvID = string(owner.UID)
		}
	}
	return key
}

func (r *Reconciler) observe(ctx context.Context, key domain.HostKey) (*snapshot, error) {
	seen := &snapshot{key: key, minimums: r.Service.HostMinimums()}
	var infraEnvs agentv1.InfraEnvList
	if err := r.Client.List(ctx, &infraEnvs, client.MatchingFields{infraenv.UIDIndex: key.InfraEnvID}, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("looking for the InfraEnv of host %s: %w", key, err)
	}
	if len(infraEnvs.Items) > 0 {
		seen.infraEnv = &infraEnvs.Items[0]
	}
	var agents agentv1.AgentList
	if err := r.Client.List(ctx, &agents, client.MatchingFields{HostIndex: key.String()}); err != nil {
		return nil, fmt.Errorf("looking for the Agent of host %s: %w", key, err)
	}
	for i := range agents.Items {
		// Users who may change an Agent may change the owner that it names, but not its namespace.
		if seen.infraEnv == nil || agents.Items[i].Namespace != seen.infraEnv.Namespace {
			seen.strangers = append(seen.strangers, &agents.Items[i])
		} else {
			seen.agent = &agents.Items[i]
		}
	}
	if seen.infraEnv == nil {
		return seen, nil
	}
	if err := r.observeHost(ctx, seen); err != nil {
		return nil, err
	}
	if seen.agent == nil {
		return seen, nil
	}
	var classes agentv1.AgentClassificationList
	if err := r.Client.List(ctx, &classes, client.InNamespace(seen.agent.Namespace)); err != nil {
		return nil, fmt.Errorf("listing AgentClassifications: %w", err)
	}
	seen.classes = classes.Items
	return seen, nil
}

// observeHost reads what the service knows.
func (r *Reconciler) observeHost(ctx context.Context, seen *snapshot) error {
	host, err := r.Service.GetHost(ctx, domain.Kubernetes, seen.key)
	if domain.KindOf(err) == domain.NotFound {
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading host %s: %w", seen.key, err)
	}
	seen.host = host
	if err := r.observeCluster(ctx, seen); err != nil || seen.agent == nil {
		return err
	}
	return r.observeInventory(ctx, seen)
}

func (r *Reconciler) observeInventory(ctx context.Context, seen *snapshot) error {
	reported, err := r.Service.Inventory(ctx, domain.Kubernetes, seen.key)
	if err != nil && domain.KindOf(err) != domain.NotFound {
		return fmt.Errorf("reading the inventory of host %s: %w", seen.key, err)
	}
	seen.inventory, err = inventory(reported, seen.host.InventoryAt)
	return err
}

func (r *Reconciler) observeCluster(ctx context.Context, seen *snapshot) error {
	seen.cluster = nil
	if seen.host.ClusterID == "" {
		return nil
	}
	cluster, err := r.Service.GetCluster(ctx, domain.Kubernetes, seen.host.ClusterID)
	if err != nil && domain.KindOf(err) != domain.NotFound {
		return fmt.Errorf("reading the cluster of host %s: %w", seen.key, err)
	}
	if err == nil {
		seen.cluster = cluster
	}
	return nil
}

// state applies the spec to the service. Its error is why that is not done.
func (r *Reconciler) state(ctx context.Context, seen *snapshot) error {
	desired, err := r.desired(ctx, seen.agent)
	if err != nil {
		return err
	}
	host, err := r.Service.ApplyDesired(ctx, domain.Kubernetes, seen.key, desired)
	if domain.ReasonOf(err) == specOutdated {
		if err := r.isCurrent(ctx, seen.agent); err != nil {
			return err
		}
		desired.Current = true
		host, err = r.Service.ApplyDesired(ctx, domain.Kubernetes, seen.key, desired)
	}
	if domain.ReasonOf(err) == clusterNotFound {
		return domain.Refuse(domain.Invalid, clusterNotFound, "no AgentClusterInstall names ClusterDeployment %s yet, or the SpecSynced of the one that does says what is wrong", ClusterKey(seen.agent))
	}
	if err != nil {
		return err
	}
	was := seen.host
	seen.host = host
	if host.ClusterID != was.ClusterID {
		seen.moved = was.ClusterID != ""
		if err := r.observeCluster(ctx, seen); err != nil {
			return err
		}
	}
	// The state of the host and its inventory stand in one status: they are of one time.
	if !host.InventoryAt.Equal(was.InventoryAt) {
		return r.observeInventory(ctx, seen)
	}
	return nil
}

// isCurrent is nil where the API server has the spec that the cache shows, although a later one was applied: its data was restored. Otherwise the cache is behind.
func (r *Reconciler) isCurrent(ctx context.Context, cached *agentv1.Agent) error {
	live := &agentv1.Agent{}
	err := r.Live.Get(ctx, client.ObjectKeyFromObject(cached), live)
	if outcome.IgnoreGone(err) != nil {
		return fmt.Errorf("reading Agent %s/%s: %w", cached.Namespace, cached.Name, err)
	}
	if live.UID != cached.UID || live.Generation != cached.Generation {
		return outcome.Again(errBehind)
	}
	return nil
}

// ClusterKey is the ClusterDeployment that the Agent is for, empty for none.
func ClusterKey(agent *agentv1.Agent) client.ObjectKey {
	ref := agent.Spec.ClusterDeploymentName
	if ref == nil || ref.Name == "" {
		return client.ObjectKey{}
	}
	return client.ObjectKey{Namespace: cmp.Or(ref.Namespace, agent.Namespace), Name: ref.Name}
}

// desired is what the spec states, in the types of the service.
func (r *Reconciler) desired(ctx context.Context, agent *agentv1.Agent) (service.DesiredHost, error) {
	spec := &agent.Spec
	desired := service.DesiredHost{Spec: domain.SpecVersion{UID: string(agent.UID), Generation: agent.Generation}, HostSettings: domain.HostSettings{
		Approved: spec.Approved, Role: spec.Role, RequestedHostname: spec.Hostname, MachineConfigPool: spec.MachineConfigPool,
		InstallationDiskID: spec.InstallationDiskID, InstallationDiskPath: spec.InstallationDiskPath, InstallerArgs: spec.InstallerArgs,
		IgnitionConfigOverrides: spec.IgnitionConfigOverrides,
	}}
	if len(spec.NodeLabels) > 0 {
		desired.NodeLabels = spec.NodeLabels
	}
	for _, taint := range spec.NodeTaints {
		desired.NodeTaints = append(desired.NodeTaints, domain.Taint(taint))
	}
	if len(spec.IgnitionEndpointHTTPHeaders) > 0 {
		desired.IgnitionEndpointHTTPHeaders = spec.IgnitionEndpointHTTPHeaders
	}
	if key := ClusterKey(agent); key != (client.ObjectKey{}) {
		desired.Wipe = poolWipe(agent)
		deployment := &hivev1.ClusterDeployment{}
		err := r.Client.Get(ctx, key, deployment)
		if apierrors.IsNotFound(err) {
			return desired, domain.Refuse(domain.Invalid, "ClusterDeploymentMissing", "ClusterDeployment %s is missing", key)
		}
		if err != nil {
			return desired, fmt.Errorf("reading ClusterDeployment %s: %w", key, err)
		}
		desired.ClusterID = string(deployment.UID)
	}
	_, desired.Leaves = agent.Annotations[agentv1.LeavesClusterAnnotation]
	var err error
	desired.IgnitionEndpointToken, err = r.ignitionToken(ctx, agent)
	return desired, err
}

// poolWipe is what the MachinePool that took an Agent has wiped of its machine when it is released; empty without one. One that was taken before pools said so is wiped, too.
func poolWipe(agent *agentv1.Agent) domain.Wipe {
	wipe := domain.Wipe(agent.Annotations[agentv1.MachinePoolWipeAnnotation])
	switch {
	case !ofPool(agent):
		return "" // what is left of a pool that is gone is of the release that it began
	case wipe == "" && agent.Labels[agentv1.MachinePoolLabel] != "":
		return domain.WipeInstalledDisk
	}
	return wipe
}

// ofPool is true for an Agent that a MachinePool took, whatever else became of its labels.
func ofPool(agent *agentv1.Agent) bool {
	_, taken := agent.Annotations[agentv1.MachinePoolBoundAtAnnotation]
	return taken || agent.Labels[agentv1.MachinePoolLabel] != ""
}

// ignitionToken is read from the Agent's own namespace only.
func (r *Reconciler) ignitionToken(ctx context.Context, agent *agentv1.Agent) (string, error) {
	ref := agent.Spec.IgnitionEndpointTokenReference
	switch {
	case ref == nil:
		return "", nil
	case ref.Namespace != "" && ref.Namespace != agent.Namespace:
		return "", domain.Refuse(domain.Invalid, "TokenForeign", "ignitionEndpointTokenReference names namespace %q: only that of the Agent is read", ref.Namespace)
	}
	secret := &corev1.Secret{}
	err := r.Live.Get(ctx, client.ObjectKey{Namespace: agent.Namespace, Name: ref.Name}, secret)
	switch {
	case apierrors.IsNotFound(err):
		return "", domain.Refuse(domain.Invalid, "TokenNotFound", "the Secret %q that ignitionEndpointTokenReference names is not there", ref.Name)
	case apierrors.IsForbidden(err):
		return "", domain.Refuse(domain.Invalid, "SecretForbidden", "the Secret %q that ignitionEndpointTokenReference names may not be read: bind the ClusterRole agent-service-secrets in namespace %s",
			ref.Name, agent.Namespace)
	case err != nil:
		return "", fmt.Errorf("reading the token of the ignition endpoint: %w", err)
	case len(secret.Data["ignition-token"]) == 0:
		return "", domain.Refuse(domain.Invalid, "TokenInvalid", "the Secret %q that ignitionEndpointTokenReference names has no key ignition-token", ref.Name)
	}
	return string(secret.Data["ignition-token"]), nil
}
