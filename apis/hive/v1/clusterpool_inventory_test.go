// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package v1_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	hivev1 "github.com/muster-io/muster/apis/hive/v1"
)

// TestInventoriesOfAllFormsAreReadAndKept wants a pool to be readable whatever its inventory was stored as, and a write of the pool to leave that as it is.
func TestInventoriesOfAllFormsAreReadAndKept(t *testing.T) {
	for stored, usable := range map[string]bool{
		`{"clusterDeployments":[{"name":"blue"},{"name":"red"}]}`: true,
		`{}`: true,
		`[{"kind":"ClusterDeploymentCustomization","name":"blue"}]`: false,
		`[]`:     false,
		`"blue"`: false,
	} {
		t.Run(stored, func(t *testing.T) {
			inventory := &hivev1.ClusterPoolInventory{}
			require.NoError(t, json.Unmarshal([]byte(stored), inventory))
			assert.Equal(t, usable, inventory.Unusable == nil)
			assert.Equal(t, inventory, inventory.DeepCopy())
			for _, value := range []any{inventory, *inventory} {
				written, err := json.Marshal(value)
				require.NoError(t, err)
				assert.JSONEq(t, stored, string(written))
			}
		})
	}
	spec := hivev1.ClusterPoolSpec{}
	require.NoError(t, json.Unmarshal([]byte(`{"inventory":null}`), &spec))
	assert.Nil(t, spec.Inventory)
}
