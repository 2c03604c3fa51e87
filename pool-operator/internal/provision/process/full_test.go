// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package process_test

import (
	"context"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/muster-io/muster/pool-operator/internal/provision"
)

func TestAnEtcdThatRefusesWritesIsAProblemOfAClusterThatIsReady(t *testing.T) {
	requireBinaries(t)
	t.Parallel()
	root, err := os.MkdirTemp("", "full") // the path of a socket is limited
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(root) })
	r := open(t, root)
	t.Cleanup(r.Crash)
	ref := provision.ClusterRef{Namespace: "a", Name: "blue", UID: "1"}
	require.NoError(t, r.Start(t.Context(), ref, provision.Spec{ClusterName: "blue"}))
	for range 2 {
		assert.Nil(t, awaitState(t, r, ref, provision.StateReady).Problem, "a cluster that takes writes")
	}

	socket := filepath.Join(root, "a_blue_1", "run", "etcd.sock")
	maintain(t, socket, "alarm", `{"action":"ACTIVATE","alarm":"NOSPACE"}`)
	seen := awaitState(t, r, ref, provision.StateReady)
	require.NotNil(t, seen.Problem)
	assert.Equal(t, provision.ReasonDiskFull, seen.Problem.Reason)
	assert.Equal(t, "etcd", seen.Problem.Component)
	assert.Contains(t, seen.Problem.Message, "--endpoints=unix://"+socket)
	assert.NotEmpty(t, seen.Version)

	maintain(t, socket, "defragment", `{}`)
	maintain(t, socket, "alarm", `{"action":"DEACTIVATE","alarm":"NOSPACE"}`)
	assert.Nil(t, awaitState(t, r, ref, provision.StateReady).Problem)
}

// etcd begins with nothing in an empty directory, and the rest of the directory says that it is the cluster.
func TestAClusterWhoseEtcdDirectoryIsGoneMissesItsData(t *testing.T) {
	requireBinaries(t)
	t.Parallel()
	root := t.TempDir()
	r := open(t, root)
	t.Cleanup(r.Crash)
	ref := newRef("emptied")
	require.NoError(t, r.Start(t.Context(), ref, provision.Spec{ClusterName: "blue"}))
	assert.Empty(t, awaitState(t, r, ref, provision.StateReady).DataMissing)
	require.NoError(t, r.Stop(t.Context(), ref))
	stopped := awaitState(t, r, ref, provision.StateStopped)
	assert.Empty(t, stopped.DataMissing)

	data, err := filepath.Glob(filepath.Join(root, "*", "etcd"))
	require.NoError(t, err)
	require.Len(t, data, 1)
	require.NoError(t, os.Rename(data[0], data[0]+".saved"))
	lost := awaitState(t, r, ref, provision.StateStopped)
	assert.Equal(t, stopped.ID, lost.ID, "the identity is there")
	assert.Contains(t, lost.DataMissing, data[0])
	record := filepath.Join(filepath.Dir(data[0]), "plane.json")
	require.NoError(t, os.Rename(record, record+".saved"))
	assert.Contains(t, awaitState(t, r, ref, provision.StateStopped).DataMissing, data[0], "a backup may lack both")
	require.NoError(t, os.Rename(record+".saved", record))
	require.NoError(t, os.Rename(data[0]+".saved", data[0]))
	assert.Empty(t, awaitState(t, r, ref, provision.StateStopped).DataMissing)
	removeAll(t, r, root, ref)
}

// maintain asks etcd for a piece of maintenance, as etcdctl does.
func maintain(t *testing.T, socket, what, body string) {
	t.Helper()
	etcd := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}}}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://etcd/v3/maintenance/"+what, strings.NewReader(body))
	require.NoError(t, err)
	response, err := etcd.Do(request)
	require.NoError(t, err)
	require.NoError(t, response.Body.Close())
	require.Equal(t, http.StatusOK, response.StatusCode)
}
