// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package clusterdeployment_test

import (
	"net"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	hivev1 "github.com/muster-io/muster/apis/hive/v1"
	"github.com/muster-io/muster/pool-operator/internal/controlplane"
	"github.com/muster-io/muster/pool-operator/internal/provision"
)

// awaitReason waits until the condition gives the reason, and returns its sentence.
func (o *operator) awaitReason(key client.ObjectKey, kind string, reason provision.Reason) string {
	o.Helper()
	message := ""
	require.EventuallyWithT(o, func(t *assert.CollectT) {
		cluster := &hivev1.ClusterDeployment{}
		require.NoError(t, o.admin.Get(o.Context(), key, cluster))
		condition := hivev1.FindCondition(cluster.Status.Conditions, kind)
		require.NotNil(t, condition)
		require.Equal(t, corev1.ConditionTrue, condition.Status, "%+v", cluster.Status.Conditions)
		require.Equal(t, string(reason), condition.Reason)
		message = condition.Message
	}, patience, 20*time.Millisecond)
	return message
}

func TestAMissingProgramIsNamedAndFoundOnceItIsThere(t *testing.T) {
	var installed atomic.Bool
	o := newOperator(t, func(o *operator) {
		o.binaries = func() (controlplane.Binaries, error) {
			if !installed.Load() {
				return controlplane.Binaries{}, &controlplane.MissingBinaryError{Name: "etcd", Looked: []string{"/nowhere"}}
			}
			return controlplane.FindBinaries("")
		}
	})
	key := client.ObjectKeyFromObject(createCluster(t, o.admin))
	assert.Contains(t, o.awaitReason(key, hivev1.ClusterDeploymentProvisionFailed, provision.ReasonBinaryMissing), "etcd")
	installed.Store(true)
	o.await(key, hivev1.PowerStateRunning)
}

func TestATakenPortIsNamedAndUsedOnceItIsFree(t *testing.T) {
	o := newOperator(t)
	key := client.ObjectKeyFromObject(createCluster(t, o.admin))
	address := strings.TrimPrefix(o.await(key, hivev1.PowerStateRunning).Status.APIURL, "https://")
	// An operator that lives holds the ports of its clusters, also of those that sleep.
	o.crash()
	listener, err := net.Listen("tcp", address)
	require.NoError(t, err)
	o.start()
	assert.Contains(t, o.awaitReason(key, hivev1.ClusterDeploymentUnreachable, provision.ReasonPortsTaken), address)
	require.NoError(t, listener.Close())
	assert.Equal(t, "https://"+address, o.await(key, hivev1.PowerStateRunning).Status.APIURL, "the address never changes")
}

func TestAFullDiskIsNamedAndUsedOnceThereIsRoom(t *testing.T) {
	root, err := os.MkdirTemp("", "muster-full-disk-")
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.Remove(root) })
	// Too small for etcd's log.
	if err := syscall.Mount("tmpfs", root, "tmpfs", 0, "size=8m"); err != nil {
		require.NotEqual(t, "true", os.Getenv("CI"), "mounting a small disk: %v", err)
		t.Skipf("mounting a small disk takes rights that this account does not have: %v", err)
	}
	t.Cleanup(func() { assert.NoError(t, syscall.Unmount(root, syscall.MNT_DETACH)) })
	o := newOperator(t, func(o *operator) { o.root = root })
	key := client.ObjectKeyFromObject(createCluster(t, o.admin))
	assert.Contains(t, o.awaitReason(key, hivev1.ClusterDeploymentProvisionFailed, provision.ReasonDiskFull), "no space left")
	require.NoError(t, syscall.Mount("tmpfs", root, "tmpfs", syscall.MS_REMOUNT, "size=1g"))
	o.await(key, hivev1.PowerStateRunning)
}
