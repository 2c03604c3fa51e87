// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package process_test

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/muster-io/muster/pool-operator/internal/provision"
	"github.com/muster-io/muster/pool-operator/internal/provision/contract"
	"github.com/muster-io/muster/pool-operator/internal/provision/process"
)

// one is one cluster of a runtime of its own.
type one struct {
	*testing.T
	runtime *process.Runtime
	root    string
	ref     provision.ClusterRef
}

func newOne(t *testing.T) *one {
	t.Helper()
	requireBinaries(t)
	t.Parallel()
	root := t.TempDir()
	o := &one{T: t, runtime: open(t, root), root: root, ref: provision.ClusterRef{Namespace: "ns", Name: "one", UID: types.UID(uuid.NewString())}}
	t.Cleanup(o.runtime.Crash)
	return o
}

func (o *one) await(want provision.State) provision.Observation {
	o.Helper()
	var last provision.Observation
	require.Eventually(o, func() bool {
		var err error
		last, err = o.runtime.Observe(o.Context(), o.ref)
		return err == nil && last.State == want
	}, patience, 20*time.Millisecond, "waiting for %s", want)
	return last
}

// restart runs the cluster with another level of auditing.
func (o *one) restart(audit string) provision.Observation {
	o.Helper()
	require.NoError(o, o.runtime.Stop(o.Context(), o.ref))
	o.await(provision.StateStopped)
	require.NoError(o, o.runtime.Start(o.Context(), o.ref, provision.Spec{ClusterName: "one", Audit: audit}))
	return o.await(provision.StateReady)
}

func (o *one) file(elements ...string) string {
	return filepath.Join(append([]string{o.root, "ns_one_" + string(o.ref.UID)}, elements...)...)
}

// stored says whether the text stands in what etcd wrote.
func (o *one) stored(text string) bool {
	found := false
	require.NoError(o, filepath.WalkDir(o.file("etcd"), func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := os.ReadFile(path)
		found = found || bytes.Contains(content, []byte(text))
		return err
	}))
	return found
}

func TestSecretsAreEncryptedAndRequestsAuditedOnDemand(t *testing.T) {
	o := newOne(t)
	require.NoError(t, o.runtime.Start(t.Context(), o.ref, provision.Spec{ClusterName: "one"}))
	o.await(provision.StateReady)
	access, err := o.runtime.Access(t.Context(), o.ref)
	require.NoError(t, err)
	config, err := clientcmd.RESTConfigFromKubeConfig(access.Kubeconfig)
	require.NoError(t, err)
	core := kubernetes.NewForConfigOrDie(config).CoreV1()
	_, err = core.Secrets("default").Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "s"}, StringData: map[string]string{"k": "secret-value"}}, metav1.CreateOptions{})
	require.NoError(t, err)
	_, err = core.ConfigMaps("default").Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "m"}, Data: map[string]string{"k": "plain-value"}}, metav1.CreateOptions{})
	require.NoError(t, err)
	assert.True(t, o.stored("plain-value"), "plain values are found in the files of etcd")
	assert.False(t, o.stored("secret-value"), "Secrets are encrypted there")
	assert.NoFileExists(t, o.file("log", "audit.log"), "audit is off by default")

	o.restart("Metadata")
	secret, err := core.Secrets("default").Get(t.Context(), "s", metav1.GetOptions{})
	require.NoError(t, err)
	assert.Equal(t, "secret-value", string(secret.Data["k"]), "the key is kept")
	require.Eventually(t, func() bool {
		log, err := os.ReadFile(o.file("log", "audit.log"))
		return err == nil && bytes.Contains(log, []byte(`"requestURI":"/api/v1/namespaces/default/secrets/s"`))
	}, time.Minute, 20*time.Millisecond, "requests are audited")

	require.NoError(t, os.Remove(o.file("pki", "audit.yaml")))
	o.restart("")
	assert.NoFileExists(t, o.file("pki", "audit.yaml"))
}

// The kubeconfig that was handed out is made anew before it ends, while the cluster runs, and the one before goes on working.
func TestCredentialsAreRenewedWhileTheClusterRuns(t *testing.T) {
	o := newOne(t)
	require.NoError(t, o.runtime.Start(t.Context(), o.ref, provision.Spec{ClusterName: "one"}))
	first := o.await(provision.StateReady)
	assert.False(t, first.Outdated)
	before, err := o.runtime.Access(t.Context(), o.ref)
	require.NoError(t, err)
	require.Equal(t, before.ID(), first.AccessID)
	require.NoError(t, o.runtime.Renew(t.Context(), o.ref, provision.Spec{}))
	require.Equal(t, first.AccessID, o.await(provision.StateReady).AccessID, "credentials that are valid for long are kept")

	// A certificate that is missing is as outdated as one that ends.
	require.NoError(t, os.Remove(o.file("pki", "admin.crt")))
	require.True(t, o.await(provision.StateReady).Outdated)
	require.NoError(t, o.runtime.Renew(t.Context(), o.ref, provision.Spec{}))
	second := o.await(provision.StateReady)
	assert.False(t, second.Outdated)
	assert.NotEqual(t, first.AccessID, second.AccessID, "so that the Secret with the kubeconfig is written anew")
	assert.Equal(t, first.Since, second.Since, "the cluster was not disturbed")
	after, err := o.runtime.Access(t.Context(), o.ref)
	require.NoError(t, err)
	assert.Equal(t, before.Password, after.Password)
	require.NoError(t, contract.Kubernetes{}.Use(t.Context(), after))
	require.NoError(t, contract.Kubernetes{}.Use(t.Context(), before))
}
