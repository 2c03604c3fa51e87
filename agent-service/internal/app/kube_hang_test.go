// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	agentv1 "github.com/muster-io/muster/apis/agentinstall/v1beta1"
	hivev1 "github.com/muster-io/muster/apis/hive/v1"
)

// hanging is an API server that accepts connections and requests, and never answers. It counts the requests.
func hanging(t *testing.T) (kubeconfig []byte, asked *atomic.Int64) {
	t.Helper()
	asked = &atomic.Int64{}
	ended := make(chan struct{})
	server := httptest.NewTLSServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		select {
		case <-r.Context().Done():
		case <-ended:
		}
	}))
	t.Cleanup(func() { close(ended); server.CloseClientConnections(); server.Close() })
	return kubeconfigOf(t, server), asked
}

// kubeconfigOf is how a client reaches an API server that is a server of the test.
func kubeconfigOf(t *testing.T, server *httptest.Server) []byte {
	t.Helper()
	cluster := &clientcmdapi.Cluster{Server: server.URL}
	if certificate := server.Certificate(); certificate != nil {
		cluster.CertificateAuthorityData = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate.Raw})
	}
	config := clientcmdapi.NewConfig()
	config.Clusters["c"], config.AuthInfos["u"] = cluster, &clientcmdapi.AuthInfo{Token: "t"}
	config.Contexts["c"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}
	config.CurrentContext = "c"
	kubeconfig, err := clientcmd.Write(*config)
	require.NoError(t, err)
	return kubeconfig
}

// A cluster is deleted while its control plane accepts requests and answers none. Its MachinePool, the cluster and its machine do not wait for an answer, and a machine of another cluster is
// released meanwhile.
func TestAControlPlaneThatHangsKeepsNoMachine(t *testing.T) {
	t.Parallel()
	c := newCluster(t, withSystem(t))
	c.reside = true
	bootstrappers(c)
	rack := c.infraEnv("rack", func(s *agentv1.InfraEnvSpec) {
		s.AgentApproval = &agentv1.AgentApproval{AutoApprove: true}
		s.AllowedClusters = &agentv1.AllowedClusters{Namespaces: &agentv1.ClusterNamespaces{From: agentv1.FromAll}}
	})
	agent := c.agent(c.boot(rack, 1, 0))
	deployment, secret := c.takesNodes()
	change(c, deployment, func(d *hivev1.ClusterDeployment) { d.Finalizers = append(d.Finalizers, "example.com/installer") })
	pool := blueWorkers(c, deployment)
	c.until(agent, "the machine is installed", func() bool { return agent.Status.DebugInfo.State == "added-to-existing-cluster" })
	c.node(agent.Spec.Hostname, corev1.ConditionTrue)
	c.says(agent, agentv1.ConditionJoined, agentv1.ReasonNodeReady)
	c.asksForInstructions(agent)
	other := c.agent(c.boot(rack, 2, 0))
	healthy, _ := c.takesNodes()
	change(c, other, func(a *agentv1.Agent) {
		a.Spec.ClusterDeploymentName, a.Spec.Approved, a.Spec.Hostname, a.Spec.Role = reference(healthy), true, worker(c.namespace), "worker"
	})
	c.until(other, "the other machine is installed", func() bool { return other.Status.DebugInfo.State == "added-to-existing-cluster" })
	c.asksForInstructions(other)

	kubeconfig, asked := hanging(t)
	change(c, secret, func(s *corev1.Secret) { s.Data[hivev1.SecretKeyKubeconfig] = kubeconfig })
	require.NoError(t, c.user.Delete(t.Context(), deployment))
	require.NoError(t, c.user.Delete(t.Context(), pool))
	c.gone(pool)
	c.until(agent, "the cluster is asked to let the machine go", func() bool { return asked.Load() > 0 })
	assert.False(t, agentv1.IsConditionTrue(agent.Status.Conditions, agentv1.ConditionReleased), "the cluster may still answer")
	change(c, other, func(a *agentv1.Agent) { a.Spec.ClusterDeploymentName = nil })
	c.until(other, "the other machine is free", func() bool { return agentv1.IsConditionTrue(other.Status.Conditions, agentv1.ConditionReleased) })

	change(c, deployment, func(d *hivev1.ClusterDeployment) { d.Finalizers = nil })
	c.gone(deployment)
	c.until(agent, "the machine is free", func() bool {
		return agentv1.IsConditionTrue(agent.Status.Conditions, agentv1.ConditionReleased) && agent.Status.DebugInfo.State == "known-unbound" && agent.Labels[agentv1.MachinePoolLabel] == ""
	})
	assert.Equal(t, "The cluster is gone", agent.Status.DeprovisionInfo.Message)
}
