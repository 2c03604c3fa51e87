// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package ippool

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	ipamv1 "github.com/muster-io/muster/apis/ipam/v1alpha1"
)

func ownerOf(group, kind, name string) metav1.OwnerReference {
	return metav1.OwnerReference{APIVersion: group + "/v1beta1", Kind: kind, Name: name, UID: types.UID("uid-" + kind + "-" + name)}
}

// TestAPoolLeavesTheClusterThatItsSpecNamesNoMore has pools that belonged to the Cluster a. They would be deleted with it.
func TestAPoolLeavesTheClusterThatItsSpecNamesNoMore(t *testing.T) {
	const clusters = "cluster.x-k8s.io"
	ofOperator := map[string]string{ipamv1.ClusterNameLabel: "a", ipamv1.ProviderLabel: ipamv1.ProviderName, "team": "x"}
	a, b, app := ownerOf(clusters, "Cluster", "a"), ownerOf(clusters, "Cluster", "b"), ownerOf("apps.example.com", "Cluster", "a")
	for name, c := range map[string]struct {
		clusterName *string
		labels      map[string]string
		owners      []metav1.OwnerReference
		want        []metav1.OwnerReference
		wantLabel   string
	}{
		"it names none":                      {nil, ofOperator, []metav1.OwnerReference{a}, nil, ""},
		"it names an empty one":              {new(""), ofOperator, []metav1.OwnerReference{a}, nil, ""},
		"it names another one":               {new("b"), ofOperator, []metav1.OwnerReference{a}, nil, "b"},
		"others own it too":                  {nil, ofOperator, []metav1.OwnerReference{a, b, app}, []metav1.OwnerReference{b, app}, ""},
		"it names the same":                  {new("a"), ofOperator, []metav1.OwnerReference{a}, []metav1.OwnerReference{a}, "a"},
		"a user gave it the owner and label": {nil, map[string]string{ipamv1.ClusterNameLabel: "a"}, []metav1.OwnerReference{a}, []metav1.OwnerReference{a}, "a"},
	} {
		t.Run(name, func(t *testing.T) {
			pool := &ipamv1.IPPool{
				ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", Labels: c.labels, OwnerReferences: c.owners},
				Spec:       ipamv1.IPPoolSpec{NamePrefix: "p", ClusterName: c.clusterName},
			}
			s := newShell(t, verifier{}, pool)
			_, err := s.reconcile()
			require.NoError(t, err)
			got := &ipamv1.IPPool{}
			require.NoError(t, s.client.Get(t.Context(), types.NamespacedName{Namespace: "ns", Name: "p"}, got))
			assert.Equal(t, c.want, got.OwnerReferences)
			assert.Equal(t, c.wantLabel, got.Labels[ipamv1.ClusterNameLabel])
			assert.Equal(t, c.labels["team"], got.Labels["team"])
		})
	}
}
