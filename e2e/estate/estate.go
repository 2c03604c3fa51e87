// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package estate gives users addresses, clusters and hosts, and compares what they have before and after something happened to the control plane.
package estate

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	agentv1 "github.com/muster-io/muster/apis/agentinstall/v1beta1"
	hivev1 "github.com/muster-io/muster/apis/hive/v1"
	hiveextv1 "github.com/muster-io/muster/apis/hiveextensions/v1beta1"
	ipamv1 "github.com/muster-io/muster/apis/ipam/v1alpha1"
	metal3v1 "github.com/muster-io/muster/apis/metal3/v1alpha1"
	"github.com/muster-io/muster/e2e/environment"
)

const (
	// Patience is for operators that ask again after a while, on a machine that runs other tests.
	Patience = 2 * time.Minute
	// Interval is the time between two looks.
	Interval = 50 * time.Millisecond
	// Team is the namespace of those who have something.
	Team = "team"
)

// Cluster is a control plane on which tests start the operators of pools and of addresses, or a cluster in which they run.
type Cluster struct {
	*testing.T
	client.Client
	// Local runs the control plane and the operators; nil for a cluster that tests do not start operators on.
	Local *environment.Local
}

// New returns the control plane of an environment to a test.
func New(t *testing.T, local *environment.Local) *Cluster {
	t.Helper()
	c := Of(t, local)
	c.Local = local
	return c
}

// Of returns a cluster in which operators run to a test.
func Of(t *testing.T, env environment.Environment) *Cluster {
	t.Helper()
	config, err := environment.Config(env)
	require.NoError(t, err)
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, hivev1.AddToScheme, ipamv1.AddToScheme, metal3v1.AddToScheme, agentv1.AddToScheme, hiveextv1.AddToScheme} {
		require.NoError(t, add(scheme))
	}
	c, err := client.New(config, client.Options{Scheme: scheme})
	require.NoError(t, err)
	return &Cluster{T: t, Client: c}
}

// StartOperators starts the operators of pools and of addresses, from another directory than bin/ if one is named.
func (c *Cluster) StartOperators(programs string) {
	c.Helper()
	for _, operator := range operators() {
		if programs != "" {
			operator.Program = filepath.Join(programs, operator.Name)
		}
		require.NoError(c, c.Local.StartOperator(c.Context(), operator))
	}
}

// StopOperators ends them as a crash would.
func (c *Cluster) StopOperators() {
	for _, operator := range operators() {
		c.Local.KillOperator(operator.ID())
	}
}

func operators() []environment.Operator {
	addresses := environment.IPAMOperator()
	addresses.Args = func(string) []string { return nil } // as the overlay for production has it: without network data
	return []environment.Operator{environment.PoolOperator(), addresses}
}

// Make creates an object. For a moment after a kind was installed the API server does not know it everywhere.
func (c *Cluster) Make(object client.Object) {
	c.Helper()
	require.EventuallyWithT(c, func(collect *assert.CollectT) {
		require.NoError(collect, client.IgnoreAlreadyExists(c.Create(c.Context(), object.DeepCopyObject().(client.Object))))
	}, Patience, Interval)
}

// Named is an object of the team.
func Named(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: Team, Name: name} }

// Fill gives the team three addresses of a pool that gives out random ones, a claimed cluster and a spare one of a pool, and a host.
func (c *Cluster) Fill() {
	c.Helper()
	c.Make(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: Team}})
	c.Make(&ipamv1.IPPool{ObjectMeta: Named("rack"), Spec: ipamv1.IPPoolSpec{
		NamePrefix: "rack", Prefix: 16, AllocationStrategy: ipamv1.RandomAllocation,
		Pools: []ipamv1.Pool{{Start: new(ipamv1.IPAddressStr("10.0.0.1")), End: new(ipamv1.IPAddressStr("10.0.200.254"))}},
	}})
	for i := range 3 {
		claim := &ipamv1.IPClaim{ObjectMeta: Named(fmt.Sprintf("machine-%d", i))}
		claim.Spec.Pool.Name = "rack"
		c.Make(claim)
	}
	c.Make(&corev1.Secret{ObjectMeta: Named("aws"), Data: map[string][]byte{"aws_access_key_id": []byte("id"), "aws_secret_access_key": []byte("key")}})
	c.Make(&hivev1.ClusterImageSet{ObjectMeta: metav1.ObjectMeta{Name: "release"}, Spec: hivev1.ClusterImageSetSpec{ReleaseImage: "quay.io/example/release:4.20"}})
	c.Make(&hivev1.ClusterPool{ObjectMeta: Named("dev"), Spec: hivev1.ClusterPoolSpec{
		Size: 1, RunningCount: 1, BaseDomain: "example.com", ImageSetRef: hivev1.ClusterImageSetReference{Name: "release"},
		Platform: hivev1.Platform{AWS: &runtime.RawExtension{Raw: []byte(`{"region":"eu-central-1","credentialsSecretRef":{"name":"aws"}}`)}},
	}})
	c.install(1)
	c.Make(&hivev1.ClusterClaim{ObjectMeta: Named("mine"), Spec: hivev1.ClusterClaimSpec{ClusterPoolName: "dev"}})
	c.install(2)
	host := &metal3v1.BareMetalHost{ObjectMeta: Named("node-1")}
	c.Make(host)
	host.Status.OperationalStatus = metal3v1.OperationalStatusDiscovered
	require.NoError(c, c.Status().Patch(c.Context(), host, client.RawPatch("application/merge-patch+json",
		[]byte(`{"status":{"operationalStatus":"discovered","errorCount":0,"errorMessage":"","poweredOn":true,"provisioning":{"state":"","ID":"node","image":{"url":""}},"hardware":{"hostname":"node-1","cpu":{"arch":"x86_64","count":4}}}}`))))
}

// install does what an installer does, for the clusters that are not installed yet, until there are so many.
func (c *Cluster) install(clusters int) {
	c.Helper()
	require.EventuallyWithT(c, func(collect *assert.CollectT) {
		list := &hivev1.ClusterDeploymentList{}
		require.NoError(collect, c.List(c.Context(), list))
		require.Len(collect, list.Items, clusters)
		for i := range list.Items {
			cluster := &list.Items[i]
			if cluster.Spec.Installed {
				continue
			}
			cluster.Spec.Installed = true
			require.NoError(collect, c.Update(c.Context(), cluster))
			cluster.Status.PowerState = hivev1.PowerStateRunning
			cluster.Status.InstalledTimestamp = new(metav1.Now())
			require.NoError(collect, c.Status().Update(c.Context(), cluster))
		}
	}, Patience, Interval)
}

// Estate is what the team has, in words that stay the same wherever it is.
type Estate struct {
	// Addresses are the claims by the name of their IPAddress.
	Addresses map[string]string
	// Clusters say the state and the claim, by namespace/name of a ClusterDeployment.
	Clusters map[string]string
	// Claims are the names of IPAddresses, or the namespace of the cluster, by the name of the claim.
	Claims map[string]string
	// Hosts are the nodes and hostnames by the name of a BareMetalHost.
	Hosts map[string]string
}

// Read returns what the team has. It fails where a claim is not served, or a cluster records another claim than the one that has it.
func (c *Cluster) Read(t require.TestingT) Estate {
	out := Estate{map[string]string{}, map[string]string{}, map[string]string{}, map[string]string{}}
	addresses := &ipamv1.IPAddressList{}
	require.NoError(t, c.List(c.Context(), addresses))
	for i := range addresses.Items {
		out.Addresses[addresses.Items[i].Name] = addresses.Items[i].Spec.Claim.Name
	}
	claims := &ipamv1.IPClaimList{}
	require.NoError(t, c.List(c.Context(), claims))
	for i := range claims.Items {
		require.NotNil(t, claims.Items[i].Status.Address, claims.Items[i].Name)
		out.Claims[claims.Items[i].Name] = claims.Items[i].Status.Address.Name
	}
	clusters := &hivev1.ClusterDeploymentList{}
	require.NoError(t, c.List(c.Context(), clusters))
	for i := range clusters.Items {
		cluster := &clusters.Items[i]
		if cluster.Spec.ClusterPoolRef == nil {
			continue
		}
		out.Clusters[cluster.Namespace+"/"+cluster.Name] = fmt.Sprintf("%t %s of %q", cluster.Spec.Installed, cluster.Status.PowerState, cluster.Spec.ClusterPoolRef.ClaimName)
	}
	claim := &hivev1.ClusterClaim{}
	require.NoError(t, c.Get(c.Context(), client.ObjectKey{Namespace: Team, Name: "mine"}, claim))
	require.True(t, hivev1.IsConditionTrue(claim.Status.Conditions, hivev1.ClusterClaimRunning), "%+v", claim.Status.Conditions)
	out.Claims["mine"] = claim.Spec.Namespace
	cluster := &hivev1.ClusterDeployment{}
	require.NoError(t, c.Get(c.Context(), client.ObjectKey{Namespace: claim.Spec.Namespace, Name: claim.Spec.Namespace}, cluster))
	require.Equal(t, claim.UID, cluster.Spec.ClusterPoolRef.ClaimUID)
	hosts := &metal3v1.BareMetalHostList{}
	require.NoError(t, c.List(c.Context(), hosts))
	for i := range hosts.Items {
		out.Hosts[hosts.Items[i].Name] = hosts.Items[i].Status.Provisioning.ID + " " + hosts.Items[i].Status.HardwareDetails.Hostname
	}
	return out
}

// Rack gives the team an InfraEnv, which it returns, and a cluster that waits for machines.
func (c *Cluster) Rack() *agentv1.InfraEnv {
	c.Helper()
	c.Make(&corev1.Secret{
		ObjectMeta: Named("pull"), Type: corev1.SecretTypeDockerConfigJson, Data: map[string][]byte{corev1.DockerConfigJsonKey: []byte(`{"auths":{}}`)},
	})
	env := &agentv1.InfraEnv{ObjectMeta: Named("rack")}
	env.Spec.PullSecretRef.Name = "pull"
	c.Make(env)
	c.Make(&hivev1.ClusterDeployment{ObjectMeta: Named("metal"), Spec: hivev1.ClusterDeploymentSpec{
		ClusterName: "metal", BaseDomain: "example.org", PullSecretRef: &hivev1.LocalObjectReference{Name: "pull"},
		Platform: hivev1.Platform{AgentBareMetal: &hivev1.AgentBareMetalPlatform{}},
		ClusterInstallRef: &hivev1.ClusterInstallLocalReference{
			Group: hiveextv1.GroupVersion.Group, Version: hiveextv1.GroupVersion.Version, Kind: "AgentClusterInstall", Name: "metal",
		},
	}})
	c.Make(&hiveextv1.AgentClusterInstall{ObjectMeta: Named("metal"), Spec: hiveextv1.AgentClusterInstallSpec{
		ClusterDeploymentRef: hivev1.LocalObjectReference{Name: "metal"}, ProvisionRequirements: hiveextv1.ProvisionRequirements{ControlPlaneAgents: 1},
		Networking: hiveextv1.Networking{MachineNetwork: []hiveextv1.MachineNetworkEntry{{CIDR: "10.0.0.0/8"}}, UserManagedNetworking: new(true)},
	}})
	return env
}
