// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package upgrade_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	agentv1 "github.com/muster-io/muster/apis/agentinstall/v1beta1"
	hiveextv1 "github.com/muster-io/muster/apis/hiveextensions/v1beta1"
	"github.com/muster-io/muster/apis/needtest"
	"github.com/muster-io/muster/e2e/environment"
	"github.com/muster-io/muster/e2e/estate"
)

// database is one that the service is backed up and restored with, as docs/operations.md says.
type database interface {
	// address is what --database takes, for a service whose directory is dir.
	address(dir string) string
	// backUp keeps the database, while the service is stopped.
	backUp(t *testing.T, dir string)
	// restore puts back what was kept, into an empty database.
	restore(t *testing.T, dir string)
	// query runs SQL, and returns the rows.
	query(t *testing.T, dir, statement string) []string
}

// sqlite is a file on the volume of the service, which is kept as a whole.
type sqlite struct{ snapshot string }

func (sqlite) address(dir string) string { return filepath.Join(dir, databaseFile) }

func (s sqlite) backUp(t *testing.T, dir string) {
	t.Helper()
	require.NoError(t, os.CopyFS(s.snapshot, os.DirFS(dir)))
}

func (s sqlite) restore(t *testing.T, dir string) {
	t.Helper()
	require.NoError(t, os.RemoveAll(dir))
	require.NoError(t, os.CopyFS(dir, os.DirFS(s.snapshot)))
}

func (s sqlite) query(t *testing.T, dir, statement string) []string {
	t.Helper()
	program, err := exec.LookPath("sqlite3")
	needtest.Part(t, err == nil, "sqlite3 is not installed: install the package sqlite3 of Debian")
	return run(t, program, s.address(dir), statement)
}

// postgres is a server beside the service. Its dump is in the custom format of pg_dump.
type postgres struct{ url, dump string }

func (p postgres) address(string) string { return p.url }

func (p postgres) backUp(t *testing.T, _ string) {
	t.Helper()
	run(t, "pg_dump", "--format=custom", "--file="+p.dump, p.url)
}

func (p postgres) restore(t *testing.T, _ string) {
	t.Helper()
	run(t, "psql", "--quiet", "--set=ON_ERROR_STOP=1", "--command=DROP SCHEMA public CASCADE", "--command=CREATE SCHEMA public", p.url)
	run(t, "pg_restore", "--exit-on-error", "--dbname="+p.url, p.dump)
}

func (p postgres) query(t *testing.T, _, statement string) []string {
	t.Helper()
	return run(t, "psql", "--quiet", "--tuples-only", "--no-align", "--set=ON_ERROR_STOP=1", "--command="+statement, p.url)
}

// run returns the words that a program writes.
func run(t *testing.T, program string, args ...string) []string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), program, args...).CombinedOutput()
	require.NoError(t, err, "%s", out)
	return strings.Fields(string(out))
}

// A service refuses the database that a later version changed for programs of its own kind, and changes nothing. With the backup of before the upgrade it serves the same
// clusters and InfraEnvs as before.
func TestTheDatabaseIsRestoredForAFormerVersion(t *testing.T) {
	if testing.Short() {
		t.Skip("needs a control plane")
	}
	t.Run("SQLite", func(t *testing.T) {
		restored(t, sqlite{filepath.Join(t.TempDir(), "snapshot")})
	})
	t.Run("PostgreSQL", func(t *testing.T) {
		dir, err := os.MkdirTemp("", "postgres") // its user has to get to it
		require.NoError(t, err)
		t.Cleanup(func() { _ = os.RemoveAll(dir) })
		url, server, err := environment.StartPostgres(t.Context(), dir)
		needtest.Part(t, !errors.Is(err, environment.ErrNoPostgres), "PostgreSQL is not installed (Debian package postgresql)")
		require.NoError(t, err)
		t.Cleanup(func() {
			_ = server.Process.Kill()
			_ = server.Wait()
		})
		restored(t, postgres{url, filepath.Join(t.TempDir(), "dump")})
	})
}

func restored(t *testing.T, db database) {
	t.Helper()
	local, err := environment.NewLocal(t.Context(), environment.LocalOptions{Overlay: "deploy/overlays/production", UnsafeNoFsync: true, Prepared: true})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, local.Close(context.WithoutCancel(t.Context()))) })
	c := estate.New(t, local)
	service := agentService()
	dir := filepath.Join(local.Dir, service.Name)
	service.Args = func(dir string) []string { return serviceArgs(dir, db.address(dir)) }
	require.NoError(t, local.StartOperator(t.Context(), service))
	c.Make(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: estate.Team}})
	c.Rack()
	had := served(c, db, "first")
	local.StopOperator(service.Name)
	db.backUp(t, dir)

	db.query(t, dir, "UPDATE oldest_reader SET version = 1000")
	require.ErrorContains(t, local.StartOperator(t.Context(), service), "start the later version, or restore the backup of before the upgrade")
	assert.Equal(t, []string{had}, db.query(t, dir, "SELECT id FROM clusters"), "nothing is lost")

	db.restore(t, dir)
	require.NoError(t, local.StartOperator(t.Context(), service))
	assert.Equal(t, had, served(c, db, "second"))
	require.NoError(t, local.Failed())
}

// served has the service serve a new InfraEnv, so that it has read what is there, and returns the id of the only cluster that its database knows, which is the one that users
// see.
func served(c *estate.Cluster, db database, name string) string {
	c.Helper()
	env := &agentv1.InfraEnv{ObjectMeta: estate.Named(name)}
	env.Spec.PullSecretRef.Name = "pull"
	c.Make(env)
	install := &hiveextv1.AgentClusterInstall{}
	require.EventuallyWithT(c, func(collect *assert.CollectT) {
		require.NoError(collect, c.Get(c.Context(), client.ObjectKeyFromObject(env), env))
		assert.NotNil(collect, agentv1.FindCondition(env.Status.Conditions, agentv1.ConditionImageCreated))
		require.NoError(collect, c.Get(c.Context(), client.ObjectKey{Namespace: estate.Team, Name: "metal"}, install))
		assert.NotEmpty(collect, install.Status.DebugInfo.EventsURL)
	}, estate.Patience, estate.Interval)
	ids := db.query(c.T, filepath.Join(c.Local.Dir, "agent-service"), "SELECT id FROM clusters")
	require.Len(c, ids, 1)
	assert.Contains(c, install.Status.DebugInfo.EventsURL, ids[0])
	return ids[0]
}
