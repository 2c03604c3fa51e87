// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package tutorial

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-io/muster/apis/controlplanetest"
	hivev1 "github.com/muster-io/muster/apis/hive/v1"
)

func TestBlocksOfYAMLAreRead(t *testing.T) {
	text := "a\n```yaml\na: 1\nb: 2\n```\n1. step:\n   ```yaml\n   c:\n     d: 3\n   ```\n```console\n$ kubectl\n```\n"
	assert.Equal(t, []string{"a: 1\nb: 2", "c:\n  d: 3"}, blocks(text))
}

// Every manifest of the page is accepted as it is, without fields that the API server does not know.
func TestTheManifestsOfTheRackAreAccepted(t *testing.T) {
	page, err := Read("rack.md")
	require.NoError(t, err)
	user, err := client.New(controlplanetest.Start(t), client.Options{})
	require.NoError(t, err)
	user = client.WithFieldValidation(user, metav1.FieldValidationStrict)
	require.NoError(t, user.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "metal"}}))
	kinds := map[string]int{}
	for _, object := range page.Objects {
		kinds[object.GetKind()]++
		require.NoError(t, user.Create(t.Context(), object, client.DryRunAll), "%s %s", object.GetKind(), object.GetName())
	}
	for _, kind := range []string{"Secret", "InfraEnv", "ClusterImageSet", "ClusterPool", "ClusterClaim", "IPPool"} {
		assert.Positive(t, kinds[kind], kind)
	}
}

func TestThePageSaysWhatIsWiped(t *testing.T) {
	page, err := Read("rack.md")
	require.NoError(t, err)
	pool := &hivev1.ClusterPool{}
	require.NoError(t, page.Into("ClusterPool", pool))
	assert.Equal(t, hivev1.WipeInstalledDisk, pool.Spec.MachinePools[0].Platform.AgentBareMetal.OnRelease.Wipe)
	assert.ErrorContains(t, page.Into("Machine", pool), "rack.md has no Machine")
}
