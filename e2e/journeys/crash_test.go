// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package journeys_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	hivev1 "github.com/muster-io/muster/apis/hive/v1"
	"github.com/muster-io/muster/e2e/environment"
)

// restart ends the operator as a crash would and starts it again.
func (w *testEnv) restart() {
	w.t.Helper()
	operator := environment.PoolOperator()
	local.KillOperator(operator.Name)
	require.NoError(w.t, local.StartOperator(w.ctx, operator))
}

// The operator dies while a pool fills, while a claim is served and while clusters go: each time it takes up where it was.
func TestAnOperatorThatDiesTakesUpWhereItWas(t *testing.T) {
	w := newTestEnvAlone(t)
	if local == nil {
		t.Skip("the operator is not a process of this program here")
	}
	pool := w.hostedPool("crashing", 2, 1)
	w.create(pool)
	require.Eventually(t, func() bool { return len(w.clusters(t, pool.Name)) > 0 }, moment, 5*time.Millisecond)
	w.restart()
	w.untilFilled(pool)
	assert.Len(t, w.clusters(t, pool.Name), 2, "no cluster is doubled")
	assert.Len(t, w.clusterNamespaces(t), 2)

	claim := w.claim("mine", pool.Name, user("alice"))
	w.restart()
	namespace := w.untilUsable(claim)
	w.untilClusters(pool, 3)
	w.untilFilled(pool)
	assert.Len(t, w.clusters(t, pool.Name), 3)

	w.setPower(w.as("alice"), namespace, hivev1.PowerStateHibernating)
	w.restart()
	w.untilPower(namespace, hivev1.PowerStateHibernating)
	w.setPower(w.as("alice"), namespace, hivev1.PowerStateRunning)
	w.restart()
	w.untilUsable(claim)

	require.NoError(t, w.admin.Delete(t.Context(), claim))
	require.NoError(t, w.admin.Delete(t.Context(), pool))
	w.restart()
	w.untilGone(claim, patience)
	w.untilGone(pool, patience)
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		assert.Empty(c, w.clusterNamespaces(c))
		assert.Empty(c, hostedDirectories(c), "data of clusters that are gone")
	}, patience, interval)
}

// hostedDirectories returns what the process runtime keeps of clusters.
func hostedDirectories(c require.TestingT) []string {
	root := filepath.Join(local.Dir, "pool-operator", "hosted")
	var found []string
	err := filepath.WalkDir(root, func(path string, entry os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() && entry.Name() == "etcd" {
			found = append(found, fmt.Sprint(path))
		}
		return nil
	})
	require.NoError(c, err)
	return found
}
