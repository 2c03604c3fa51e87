// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package agentclusterinstall

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	agentctl "github.com/muster-io/muster/agent-service/internal/controller/agent"
	"github.com/muster-io/muster/agent-service/internal/domain"
	"github.com/muster-io/muster/agent-service/internal/hardware"
	"github.com/muster-io/muster/agent-service/internal/hostplan"
	"github.com/muster-io/muster/agent-service/internal/lifecycle"
	hivev1 "github.com/muster-io/muster/apis/hive/v1"
	hiveextv1 "github.com/muster-io/muster/apis/hiveextensions/v1beta1"
)

// snapshot is all that is known of one cluster.
type snapshot struct {
	key     client.ObjectKey
	install *hiveextv1.AgentClusterInstall
	// deployment is nil where it is missing.
	deployment *hivev1.ClusterDeployment
	// rival is true where the deployment names another installer: this object changes nothing, and nothing is deleted with it.
	rival bool
	// version is what is installed, and on machines of which architecture, pullSecret what the installed cluster pulls with.
	version, architecture, pullSecret string
	// cluster is nil where the service does not know it.
	cluster *domain.Cluster
	hosts   []domain.Host
	// restored is what the object says of a cluster that is installed and that the service does not know as such, because it lost its data; nil for others.
	restored *domain.Restored
	// obstacle is why the spec is not applied, refusal why the installation did not begin.
	obstacle, refusal error
	// unread says that the version is not that of the node access, which cannot be read at the moment.
	unread bool
	// rest is how long the installation waits before it begins again by itself.
	rest time.Duration
}

// observe reads everything. Nil means that there is nothing to look after.
func (r *Reconciler) observe(ctx context.Context, key client.ObjectKey) (*snapshot, error) {
	seen := &snapshot{key: key, install: &hiveextv1.AgentClusterInstall{}}
	if err := r.Client.Get(ctx, key, seen.install); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	deployment := &hivev1.ClusterDeployment{}
	err := r.Client.Get(ctx, deploymentKey(seen.install), deployment)
	switch {
	case apierrors.IsNotFound(err):
		seen.obstacle = domain.Refuse(domain.Invalid, "ClusterDeploymentMissing", "ClusterDeployment %s is missing", deploymentKey(seen.install))
	case err != nil:
		return nil, fmt.Errorf("reading the ClusterDeployment of AgentClusterInstall %s: %w", key, err)
	default:
		seen.deployment = deployment
		if seen.obstacle, err = r.rival(ctx, seen); err != nil {
			return nil, err
		}
		if seen.rival = seen.obstacle != nil; seen.rival {
			return seen, nil
		}
		if err := r.observeCluster(ctx, seen); err != nil {
			return nil, err
		}
		seen.obstacle = r.named(ctx, seen)
	}
	return seen, r.observeLoss(ctx, seen)
}

func deploymentKey(install *hiveextv1.AgentClusterInstall) client.ObjectKey {
	return client.ObjectKey{Namespace: install.Namespace, Name: install.Spec.ClusterDeploymentRef.Name}
}

const (
	installKind     = "AgentClusterInstall"
	imageSetMissing = "ClusterImageSetMissing"
)

// rival is why another object installs the deployment: the one that it names, or, where it names none, the oldest that points at it. Nil means that this one does.
func (r *Reconciler) rival(ctx context.Context, seen *snapshot) (why, err error) {
	ref, deployment := seen.deployment.Spec.ClusterInstallRef, client.ObjectKeyFromObject(seen.deployment)
	if ref != nil {
		if ref.Kind == installKind && ref.Name == seen.key.Name {
			return nil, nil
		}
		return domain.Refuse(domain.Invalid, "NotNamed", "spec.clusterInstallRef of ClusterDeployment %s names %s %s, which installs it: this object has no effect; delete it, or change that reference",
			deployment, ref.Kind, ref.Name), nil
	}
	var all hiveextv1.AgentClusterInstallList
	if err := r.Client.List(ctx, &all, client.MatchingFields{deploymentIndex: deployment.String()}); err != nil {
		return nil, fmt.Errorf("listing the AgentClusterInstalls of ClusterDeployment %s: %w", deployment, err)
	}
	for i := range all.Items {
		other := &all.Items[i]
		older := other.CreationTimestamp.Before(&seen.install.CreationTimestamp) ||
			other.CreationTimestamp.Equal(&seen.install.CreationTimestamp) && other.Name < seen.install.Name
		if older {
			return domain.Refuse(domain.Invalid, "NotNamed", "AgentClusterInstall %s, which is older, installs ClusterDeployment %s: this object has no effect; delete it, or name it in spec.clusterInstallRef",
				other.Name, deployment), nil
		}
	}
	return nil, nil
}

// named reads what the objects name. Its error names what is missing.
func (r *Reconciler) named(ctx context.Context, seen *snapshot) (err error) {
	seen.version, seen.architecture, err = r.versionOf(ctx, seen.install.Spec.ImageSetRef)
	if domain.ReasonOf(err) == imageSetMissing { // image sets of former versions are deleted while clusters run them
		switch c := seen.cluster; {
		case c != nil && (hostplan.TakesDayTwo(c) || agentctl.WasInstalled(seen.install)):
			seen.version, seen.architecture, err = c.OpenshiftVersion, c.CPUArchitecture, nil
		case c == nil && agentctl.WasInstalled(seen.install): // the service lost its data, and nothing else says which version it was
			seen.version, seen.architecture, err = "", hardware.Mixed, nil
		}
	}
	if err == nil {
		err = r.ofNodes(ctx, seen)
	}
	if err != nil {
		return err
	}
	ref := seen.deployment.Spec.PullSecretRef
	if ref == nil || ref.Name == "" {
		return nil
	}
	secret := &corev1.Secret{}
	err = r.Live.Get(ctx, client.ObjectKey{Namespace: seen.deployment.Namespace, Name: ref.Name}, secret)
	switch {
	case apierrors.IsNotFound(err):
		return domain.Refuse(domain.Invalid, "PullSecretNotFound", "the Secret %q that pullSecretRef of the ClusterDeployment names is not there", ref.Name)
	case apierrors.IsForbidden(err):
		return domain.Refuse(domain.Invalid, "SecretForbidden", "the Secret %q that pullSecretRef of the ClusterDeployment names may not be read: bind the ClusterRole agent-service-secrets in namespace %s",
			ref.Name, seen.deployment.Namespace)
	case err != nil:
		return fmt.Errorf("reading the pull secret: %w", err)
	case len(secret.Data[hivev1.SecretKeyDockerConfigJSON]) == 0:
		return domain.Refuse(domain.Invalid, "PullSecretInvalid", "the Secret %q that pullSecretRef of the ClusterDeployment names has no key %s",
			ref.Name, hivev1.SecretKeyDockerConfigJSON)
	}
	seen.pullSecret = string(secret.Data[hivev1.SecretKeyDockerConfigJSON])
	return nil
}

// versionOf is the version of an image set and its architecture, the service's default without one.
func (r *Reconciler) versionOf(ctx context.Context, ref *hivev1.ClusterImageSetReference) (version, architecture string, err error) {
	if ref == nil || ref.Name == "" {
		if len(r.Versions) == 0 {
			return "", hardware.Mixed, nil
		}
		return r.Versions[0], hardware.Mixed, nil
	}
	set := &hivev1.ClusterImageSet{}
	err = r.Client.Get(ctx, client.ObjectKey{Name: ref.Name}, set)
	if apierrors.IsNotFound(err) {
		return "", "", domain.Refuse(domain.Invalid, imageSetMissing, "ClusterImageSet %s is missing", ref.Name)
	}
	if err != nil {
		return "", "", fmt.Errorf("reading ClusterImageSet %s: %w", ref.Name, err)
	}
	version, architecture = release(set.Spec.ReleaseImage, r.Versions)
	return version, architecture, nil
}

// release is the version of a release image: the longest version that the service has images of and that the image's tag is or begins with, else the tag itself,
// without the architecture at its end. Without one there, machines of every architecture can be installed.
func release(releaseImage string, known []string) (version, architecture string) {
	architecture = hardware.Mixed
	name, _, _ := strings.Cut(releaseImage, "@")
	tag := name[strings.LastIndex(name, "/")+1:]
	_, tag, _ = strings.Cut(tag, ":")
	for _, end := range []string{"x86_64", "aarch64", "arm64", "ppc64le", "s390x", hardware.Mixed} {
		if rest, found := strings.CutSuffix(tag, "-"+end); found {
			tag, architecture = rest, hardware.Architecture(end)
			break
		}
	}
	best := ""
	for _, v := range known {
		if (tag == v || strings.HasPrefix(tag, v+".") || strings.HasPrefix(tag, v+"-")) && len(v) > len(best) {
			best = v
		}
	}
	if best == "" {
		return tag, architecture
	}
	return best, architecture
}

func (r *Reconciler) observeCluster(ctx context.Context, seen *snapshot) error {
	cluster, err := r.Service.GetCluster(ctx, domain.Kubernetes, string(seen.deployment.UID))
	if domain.KindOf(err) == domain.NotFound {
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading the cluster of AgentClusterInstall %s: %w", seen.key, err)
	}
	seen.cluster = cluster
	hosts, err := r.Service.ListHosts(ctx, domain.Kubernetes, domain.HostFilter{ClusterID: cluster.ID, Page: domain.WholeCluster})
	if err != nil {
		return fmt.Errorf("listing the hosts of AgentClusterInstall %s: %w", seen.key, err)
	}
	seen.hosts = hosts.Items
	return nil
}

// settle puts what the objects say into settings.
func (r *Reconciler) settle(seen *snapshot, settings *domain.ClusterSettings) {
	spec := &seen.install.Spec
	settings.OpenshiftVersion, settings.BaseDNSDomain, settings.PullSecret = seen.version, seen.deployment.Spec.BaseDomain, seen.pullSecret
	settings.ControlPlaneCount = spec.ProvisionRequirements.ControlPlaneAgents
	settings.WorkerCount = spec.ProvisionRequirements.WorkerAgents + spec.ProvisionRequirements.ArbiterAgents
	settings.MachineNetworks, settings.ClusterNetworks = nil, nil
	for _, n := range spec.Networking.MachineNetwork {
		settings.MachineNetworks = append(settings.MachineNetworks, n.CIDR)
	}
	for _, n := range spec.Networking.ClusterNetwork {
		settings.ClusterNetworks = append(settings.ClusterNetworks, n.CIDR)
	}
	settings.ServiceNetworks = slices.Clone(spec.Networking.ServiceNetwork)
	settings.UserManagedNetworking = spec.Networking.UserManagedNetworking != nil && *spec.Networking.UserManagedNetworking
	settings.APIVIPs, settings.IngressVIPs = several(spec.APIVIP, spec.APIVIPs), several(spec.IngressVIP, spec.IngressVIPs)
	settings.APIURL = apiURL(seen.deployment)
	if c := seen.cluster; settings.APIURL == "" && c != nil && c.ControlPlane != nil && c.ControlPlane.Sealed {
		settings.APIURL = c.ControlPlane.Server
	}
	settings.SSHPublicKey, settings.HoldInstallation = spec.SSHPublicKey, spec.HoldInstallation
	settings.AdditionalNTPSources = strings.Join(spec.NTPSources, ",")
	settings.Proxy = domain.Proxy{}
	if p := spec.Proxy; p != nil {
		settings.Proxy = domain.Proxy{HTTP: p.HTTPProxy, HTTPS: p.HTTPSProxy, NoProxy: p.NoProxy}
	}
	settings.CPUArchitecture = seen.architecture
}

// apiURL is where machines reach an installed cluster that takes nodes; empty for clusters that are found by their names.
func apiURL(deployment *hivev1.ClusterDeployment) string {
	metadata := deployment.Spec.ClusterMetadata
	server, err := url.Parse(deployment.Status.APIURL)
	if metadata == nil || metadata.NodeAccessSecretRef == nil || err != nil || server.Scheme != "https" || server.Host == "" {
		return ""
	}
	return "https://" + server.Host
}

// several are the addresses of a list, or the one of the older field.
func several(one string, list []string) []string {
	switch {
	case len(list) > 0:
		return slices.Clone(list)
	case one != "":
		return []string{one}
	}
	return nil
}

// counts of hosts by what they will be: those without a role fill the control plane first.
type counts struct {
	controlPlane, controlPlaneReady int
	workers, workersReady           int
	unapproved                      int
}

func count(seen *snapshot) counts {
	var c counts
	wanted := seen.install.Spec.ProvisionRequirements.ControlPlaneAgents
	ordered := slices.SortedStableFunc(slices.Values(seen.hosts), func(a, b domain.Host) int { return rank(a.Role) - rank(b.Role) })
	for i := range ordered {
		h := &ordered[i]
		ready := 0
		if h.State == lifecycle.Known {
			ready = 1
			if !h.Approved {
				c.unapproved++
			}
		}
		if h.Role == "master" || rank(h.Role) == 1 && c.controlPlane < wanted {
			c.controlPlane, c.controlPlaneReady = c.controlPlane+1, c.controlPlaneReady+ready
		} else {
			c.workers, c.workersReady = c.workers+1, c.workersReady+ready
		}
	}
	return c
}

// rank orders roles: the control plane, then what has no role yet, then the others.
func rank(role string) int {
	switch role {
	case "master":
		return 0
	case "", "auto-assign":
		return 1
	default:
		return 2
	}
}
