// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package clusterclaim

import (
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/muster-io/muster/apis/controlplanetest"
	"github.com/muster-io/muster/apis/crd"
	hivev1 "github.com/muster-io/muster/apis/hive/v1"
	"github.com/muster-io/muster/apis/needtest"
)

// besideHive is an API server with the ClusterDeployments of Hive, whose definition does not have spec.clusterPoolRef.claimUID, and the pools and claims of Muster.
func besideHive(t *testing.T) *rest.Config {
	t.Helper()
	clusters, err := os.ReadFile(needtest.Field(t, "crds", "hive", "hive.openshift.io_clusterdeployments.yaml"))
	require.NoError(t, err)
	cfg, err := clientcmd.BuildConfigFromFlags("", controlplanetest.BareKubeconfig(t))
	require.NoError(t, err)
	cfg.QPS = -1
	s := newScheme(t)
	require.NoError(t, apiextensionsv1.AddToScheme(s))
	c, err := client.New(cfg, client.Options{Scheme: s})
	require.NoError(t, err)
	texts := [][]byte{clusters}
	for _, file := range []string{"hive.openshift.io_clusterpools.yaml", "hive.openshift.io_clusterclaims.yaml"} {
		text, err := crd.FS.ReadFile(file)
		require.NoError(t, err)
		texts = append(texts, text)
	}
	for _, text := range texts {
		definition := &apiextensionsv1.CustomResourceDefinition{}
		require.NoError(t, yaml.Unmarshal(text, definition))
		require.NoError(t, c.Create(t.Context(), definition))
	}
	for _, list := range []client.ObjectList{&hivev1.ClusterDeploymentList{}, &hivev1.ClusterPoolList{}, &hivev1.ClusterClaimList{}} {
		require.Eventually(t, func() bool { return c.List(t.Context(), list) == nil }, patience, 20*time.Millisecond)
	}
	return cfg
}

func TestAClaimIsServedBesideHive(t *testing.T) {
	s := newSuiteAt(t, besideHive(t))
	s.pool("p")
	cd := s.cluster("p")
	r := s.start()
	s.claim("a", "p")
	s.waitFor("a", hivev1.ClusterClaimPending, hivev1.ReasonClusterClaimed)
	bindings := &rbacv1.RoleBindingList{}
	require.True(t, s.eventually(func() bool {
		require.NoError(t, s.client.List(t.Context(), bindings, client.InNamespace(cd.Namespace)))
		return len(bindings.Items) == 1
	}), "the user of the claim has no rights")
	require.NoError(t, s.client.Get(t.Context(), client.ObjectKeyFromObject(cd), cd))
	require.Equal(t, "a", cd.Spec.ClusterPoolRef.ClaimName)
	require.Empty(t, cd.Spec.ClusterPoolRef.ClaimUID)

	before := r.writes()["PATCH clusterdeployments"]
	require.LessOrEqual(t, before, 5, "it is not written again and again")
	require.NoError(t, s.client.Delete(t.Context(), s.get("a")))
	require.True(t, s.eventually(func() bool {
		return client.IgnoreNotFound(s.client.Get(t.Context(), client.ObjectKeyFromObject(cd), cd)) == nil && (cd.DeletionTimestamp != nil || len(s.clusters()) == 0)
	}), "the claim is gone, and its cluster stays")
}
