// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package rack_test

import (
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	agentv1 "github.com/muster-io/muster/apis/agentinstall/v1beta1"
	hivev1 "github.com/muster-io/muster/apis/hive/v1"
	"github.com/muster-io/muster/apis/machinetest"
	metal3v1 "github.com/muster-io/muster/apis/metal3/v1alpha1"
	"github.com/muster-io/muster/apis/needtest"
	"github.com/muster-io/muster/e2e/environment"
	"github.com/muster-io/muster/e2e/ironic"
)

// managing starts an Ironic, and is a discovery-operator that manages hosts through it.
func managing(t *testing.T) environment.Operator {
	t.Helper()
	i, err := ironic.New("IRONIC_DRIVERS=fake-hardware,ipmi", "IRONIC_WAIT=240")
	require.NoError(t, err)
	t.Cleanup(func() { i.Close(t.Context()) })
	_, err = i.Run(t.Context(), "", "up")
	needtest.NoError(t, err)
	t.Setenv("IRONIC_ENDPOINT", i.Endpoint)
	t.Setenv("IRONIC_INSPECTOR_ENDPOINT", i.Inspector)
	t.Setenv("METAL3_AUTH_ROOT_DIR", t.TempDir())
	discovery := environment.DiscoveryOperator()
	before := discovery.Args
	discovery.Args = func(dir string) []string { return append(before(dir), "--manage-hosts", "--provisioner=ironic") }
	return discovery
}

// host makes the BareMetalHost of a machine that runs, as its user does, and waits until its power is managed.
func (r *rack) host(m *machinetest.Managed) *metal3v1.BareMetalHost {
	r.Helper()
	running := m.Process()
	r.create(&corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "bmc"}, StringData: map[string]string{"username": machinetest.User, "password": machinetest.Password},
	})
	host := &metal3v1.BareMetalHost{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: "node-1", Labels: map[string]string{agentv1.InfraEnvLabel: "rack"}, Annotations: map[string]string{metal3v1.InspectAnnotation: "disabled"},
		},
		Spec: metal3v1.BareMetalHostSpec{Online: true, BootMACAddress: machinetest.MAC, BMC: &metal3v1.BMCDetails{Address: m.Address, CredentialsName: "bmc"}},
	}
	r.create(host)
	r.see(host, "the power of the host is managed", func() bool {
		return host.Status.Provisioning.State == metal3v1.StateAvailable && host.Status.PoweredOn && host.Status.OperationalStatus == metal3v1.OperationalStatusOK
	})
	require.Equal(r, running, m.Process(), "the machine is not restarted")
	return host
}

// A claimed cluster hibernates, and its machine is off: a real Ironic has switched it by IPMI. When the cluster resumes, the machine starts from its disk, and is the same Node.
func TestTheMachineOfAClusterThatResumesStartsFromItsDisk(t *testing.T) {
	if os.Getenv("MUSTER_RACK_POWER") == "" {
		t.Skip("MUSTER_RACK_POWER=1 has a cluster with a machine hibernate; e2e/metal does it with generated machines")
	}
	r, link := newRack(t, managing(t))
	r.create(read(r, "ClusterImageSet", &hivev1.ClusterImageSet{}))
	pool := read(r, "ClusterPool", &hivev1.ClusterPool{})
	pool.Spec.MachinePools[0].Replicas = 1
	r.create(pool)
	machines := r.machinePool()
	m := r.makeMachine(1, link, r.infraEnv(""))
	powered := machinetest.Manage(t, m.hardware)
	powered.SwitchOn(t)
	m.agent = r.onlyAgent()
	host := r.host(powered)
	r.see(m.agent, "the Agent is linked with the host", func() bool { return m.agent.Labels[agentv1.BareMetalHostLabel] == host.Name })
	r.see(machines, "the MachinePool is Ready", func() bool { return hivev1.IsConditionTrue(machines.Status.Conditions, hivev1.MachinePoolReady) })
	claim := r.claim()
	inside, _ := r.inside(claim.Spec.Namespace)
	before, after := &corev1.Node{}, &corev1.Node{}
	require.NoError(t, inside.Get(t.Context(), client.ObjectKey{Name: m.agent.Spec.Hostname}, before))

	cluster := &hivev1.ClusterDeployment{ObjectMeta: metav1.ObjectMeta{Namespace: claim.Spec.Namespace, Name: claim.Spec.Namespace}}
	for _, state := range []hivev1.PowerState{hivev1.PowerStateHibernating, hivev1.PowerStateRunning} {
		require.NoError(t, r.user.Patch(t.Context(), cluster, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"powerState":"`+string(state)+`"}}`))))
		r.see(cluster, "the cluster is "+string(state), func() bool { return cluster.Status.PowerState == state })
		assert.Equal(t, state == hivev1.PowerStateRunning, powered.On())
	}
	require.NoError(t, inside.Get(t.Context(), client.ObjectKeyFromObject(before), after))
	assert.True(t, isReady(after), "%+v", after.Status.Conditions)
	assert.Equal(t, before.UID, after.UID, "it is the same Node")
	assert.NotEqual(t, before.Status.NodeInfo.BootID, after.Status.NodeInfo.BootID, "and was started again")
	assert.Equal(t, before.Status.NodeInfo.MachineID, after.Status.NodeInfo.MachineID, "from the disk that was written before")
}
