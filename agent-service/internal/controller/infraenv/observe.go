// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package infraenv

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/muster-io/muster/agent-service/internal/domain"
	agentv1 "github.com/muster-io/muster/apis/agentinstall/v1beta1"
	hivev1 "github.com/muster-io/muster/apis/hive/v1"
)

// Why hosts cannot be bound yet that an InfraEnv is to bind: there is no ClusterDeployment, or the service does not know the cluster yet.
const (
	noDeployment = "ClusterDeploymentMissing"
	noCluster    = "ClusterNotFound"
)

// observe reads all that the spec names. A missing or unusable object is a refusal.
func (r *Reconciler) observe(ctx context.Context, infraEnv *agentv1.InfraEnv) (domain.InfraEnvSettings, error) {
	spec := &infraEnv.Spec
	stated := plain(spec)
	var err error
	if stated.PullSecret, err = r.pullSecret(ctx, infraEnv.Namespace, spec.PullSecretRef.Name); err != nil {
		return stated, err
	}
	if spec.ClusterRef != nil {
		if stated.ClusterID, err = r.cluster(ctx, infraEnv); err != nil {
			return stated, err
		}
	}
	if spec.MirrorRegistryRef != nil {
		if stated.MirrorRegistry, stated.MirrorRegistryCA, err = r.mirror(ctx, infraEnv); err != nil {
			return stated, err
		}
	}
	stated.StaticNetworkConfig, err = r.networks(ctx, infraEnv)
	return stated, err
}

// plain is what the spec says by itself.
func plain(spec *agentv1.InfraEnvSpec) domain.InfraEnvSettings {
	stated := domain.InfraEnvSettings{
		OSImageVersion: spec.OSImageVersion, CPUArchitecture: cmp.Or(spec.CPUArchitecture, "x86_64"), ImageType: cmp.Or(spec.ImageType, "full-iso"),
		NTPSources: strings.Join(spec.NTPSources, ","), AdditionalNTPSources: strings.Join(spec.AdditionalNTPSources, ","), SSHAuthorizedKey: spec.SSHAuthorizedKey,
		IgnitionConfigOverride: spec.IgnitionConfigOverride, AdditionalTrustBundle: spec.AdditionalTrustBundle, IPXEScriptType: spec.IPXEScriptType,
		AutoApprove: spec.AgentApproval != nil && spec.AgentApproval.AutoApprove,
	}
	if spec.OnRelease != nil {
		stated.Wipe = domain.Wipe(spec.OnRelease.Wipe)
	}
	stated.NodeAddresses = Pools(*spec)
	if len(spec.AgentLabels) > 0 {
		stated.AgentLabels = spec.AgentLabels
	}
	if spec.NetworkDiscoveryDelaySeconds != nil {
		stated.NetworkDiscoveryDelaySeconds = *spec.NetworkDiscoveryDelaySeconds
	}
	if p := spec.Proxy; p != nil {
		stated.Proxy = domain.Proxy{HTTP: p.HTTPProxy, HTTPS: p.HTTPSProxy, NoProxy: p.NoProxy}
	}
	for _, a := range spec.KernelArguments {
		stated.KernelArguments = append(stated.KernelArguments, domain.KernelArgument{Operation: a.Operation, Value: a.Value})
	}
	return stated
}

// Pools are those that give the installed machines of an InfraEnv addresses.
func Pools(spec agentv1.InfraEnvSpec) (pools []domain.AddressPool) {
	for _, pool := range spec.NodeAddresses {
		pools = append(pools, domain.AddressPool{Group: pool.APIGroup, Kind: pool.Kind, Name: pool.Name, Interface: pool.Interface})
	}
	return pools
}

func (r *Reconciler) pullSecret(ctx context.Context, namespace, name string) (string, error) {
	secret := &corev1.Secret{}
	err := r.Live.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, secret)
	switch {
	case name == "" || apierrors.IsNotFound(err):
		return "", domain.Refuse(domain.Invalid, "PullSecretNotFound", "the Secret %q that pullSecretRef names is not there", name)
	case apierrors.IsForbidden(err):
		return "", domain.Refuse(domain.Invalid, "SecretForbidden", "the Secret %q that pullSecretRef names may not be read: bind the ClusterRole agent-service-secrets in namespace %s", name, namespace)
	case err != nil:
		return "", fmt.Errorf("reading the pull secret: %w", err)
	case len(secret.Data[hivev1.SecretKeyDockerConfigJSON]) == 0:
		return "", domain.Refuse(domain.Invalid, "PullSecretInvalid", "the Secret %q that pullSecretRef names has no key %s", name, hivev1.SecretKeyDockerConfigJSON)
	}
	return string(secret.Data[hivev1.SecretKeyDockerConfigJSON]), nil
}

// cluster is the id of the cluster that clusterRef names: the UID of its ClusterDeployment.
func (r *Reconciler) cluster(ctx context.Context, infraEnv *agentv1.InfraEnv) (string, error) {
	key := clusterKey(infraEnv)
	deployment := &hivev1.ClusterDeployment{}
	err := r.Client.Get(ctx, key, deployment)
	if apierrors.IsNotFound(err) {
		return "", domain.Refuse(domain.Invalid, noDeployment, "ClusterDeployment %s is missing", key)
	}
	return string(deployment.UID), err
}

func clusterKey(infraEnv *agentv1.InfraEnv) client.ObjectKey {
	ref := infraEnv.Spec.ClusterRef
	return client.ObjectKey{Namespace: cmp.Or(ref.Namespace, infraEnv.Namespace), Name: ref.Name}
}

// mirror reads the configuration of mirrors, from the namespace of the InfraEnv only.
func (r *Reconciler) mirror(ctx context.Context, infraEnv *agentv1.InfraEnv) (registries, certificates string, err error) {
	ref := infraEnv.Spec.MirrorRegistryRef
	if ref.Namespace != infraEnv.Namespace {
		return "", "", domain.Refuse(domain.Invalid, "MirrorRegistryForeign", "mirrorRegistryRef names namespace %q: only that of the InfraEnv is read", ref.Namespace)
	}
	config := &corev1.ConfigMap{}
	err = r.Live.Get(ctx, client.ObjectKey{Namespace: infraEnv.Namespace, Name: ref.Name}, config)
	switch {
	case apierrors.IsNotFound(err):
		return "", "", domain.Refuse(domain.Invalid, "MirrorRegistryNotFound", "the ConfigMap %q that mirrorRegistryRef names is not there", ref.Name)
	case err != nil:
		return "", "", fmt.Errorf("reading the configuration of mirrors: %w", err)
	case config.Data["registries.conf"] == "":
		return "", "", domain.Refuse(domain.Invalid, "MirrorRegistryInvalid", "the ConfigMap %q that mirrorRegistryRef names has no key registries.conf", ref.Name)
	}
	return config.Data["registries.conf"], config.Data["ca-bundle.crt"], nil
}

// network is the static network of one machine, as the service keeps it.
type network struct {
	YAML string          `json:"network_yaml"`
	MACs []interfaceName `json:"mac_interface_map"`
}

type interfaceName struct {
	MAC  string `json:"mac_address"`
	Name string `json:"logical_nic_name"`
}

// networks are the NMStateConfigs that the selector chooses, in the order of their names. An empty selector chooses none.
func (r *Reconciler) networks(ctx context.Context, infraEnv *agentv1.InfraEnv) (json.RawMessage, error) {
	selector, err := metav1.LabelSelectorAsSelector(&infraEnv.Spec.NMStateConfigLabelSelector)
	if err != nil {
		return nil, domain.Refuse(domain.Invalid, "SelectorInvalid", "nmStateConfigLabelSelector cannot be used: %v", err)
	}
	if selector.Empty() || selector.String() == labels.Nothing().String() {
		return nil, nil
	}
	var configs agentv1.NMStateConfigList
	if err := r.Client.List(ctx, &configs, client.InNamespace(infraEnv.Namespace), client.MatchingLabelsSelector{Selector: selector}); err != nil {
		return nil, fmt.Errorf("listing NMStateConfigs: %w", err)
	}
	slices.SortFunc(configs.Items, func(a, b agentv1.NMStateConfig) int { return strings.Compare(a.Name, b.Name) })
	var chosen []network
	for i := range configs.Items {
		spec := &configs.Items[i].Spec
		if !configs.Items[i].DeletionTimestamp.IsZero() || spec.NetConfig == nil {
			continue
		}
		text, err := yaml.JSONToYAML(spec.NetConfig.Raw)
		if err != nil {
			return nil, domain.Refuse(domain.Invalid, "NMStateConfigInvalid", "NMStateConfig %s cannot be read", configs.Items[i].Name)
		}
		one := network{YAML: string(text)}
		for _, i := range spec.Interfaces {
			one.MACs = append(one.MACs, interfaceName{MAC: strings.ToLower(i.MacAddress), Name: i.Name})
		}
		chosen = append(chosen, one)
	}
	if len(chosen) == 0 {
		return nil, nil
	}
	return json.Marshal(chosen)
}
