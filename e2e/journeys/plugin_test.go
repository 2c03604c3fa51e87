// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package journeys_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	hivev1 "github.com/muster-io/muster/apis/hive/v1"
	"github.com/muster-io/muster/e2e/access"
	"github.com/muster-io/muster/e2e/checkout"
	"github.com/muster-io/muster/e2e/environment"
)

// plugin types a command of the plugin as a user.
func (s *session) plugin(user string, args ...string) (string, error) {
	s.t.Helper()
	return s.kubectl(append(append([]string{"muster"}, args...), "--as="+user)...)
}

// kubectl types a command in the journey's namespace.
func (s *session) kubectl(args ...string) (string, error) {
	s.t.Helper()
	kubectl, err := environment.Kubectl(s.ctx)
	require.NoError(s.t, err)
	bin, err := checkout.Path("bin")
	require.NoError(s.t, err)
	c := exec.CommandContext(s.ctx, kubectl, append(args, "--namespace="+s.namespace)...)
	c.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig, "PATH="+bin+string(os.PathListSeparator)+os.Getenv("PATH"))
	out, err := c.CombinedOutput()
	return string(out), err
}

// untilReady waits for the condition Ready of objects, as users and GitOps tools do.
func (s *session) untilReady(objects ...string) {
	s.t.Helper()
	out, err := s.kubectl(append([]string{"wait", "--for=condition=Ready", "--timeout=" + patience.String()}, objects...)...)
	require.NoError(s.t, err, out)
}

// A user who may edit in a namespace claims a cluster with one command, works in it, and gives it back with another.
func TestOneCommandClaimsACluster(t *testing.T) {
	w := newTestEnv(t)
	pool := w.hostedPool("plugin", 1, 1)
	w.create(pool)
	w.create(&rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "edit"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "edit"}, Subjects: []rbacv1.Subject{user("carol")},
	})
	file := filepath.Join(t.TempDir(), "kubeconfig")
	out, err := w.plugin("carol", "claim", pool.Name, "--name=mine", "--save-kubeconfig="+file, "--timeout="+patience.String())
	require.NoError(t, err, out)
	assert.Contains(t, out, "runs")
	content, err := os.ReadFile(file)
	require.NoError(t, err)
	config, err := access.Config(content, administrator)
	require.NoError(t, err)
	inside, err := kubernetes.NewForConfig(config)
	require.NoError(t, err)
	_, err = inside.CoreV1().ConfigMaps("default").Create(t.Context(), note("hello"), metav1.CreateOptions{})
	require.NoError(t, err)

	w.untilReady("clusterclaim/mine")
	claim := &hivev1.ClusterClaim{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "mine"}}
	w.refresh(t, claim)
	assert.Equal(t, []rbacv1.Subject{user("carol")}, claim.Spec.Subjects, "the user of the command gets access")
	out, err = w.plugin("carol", "status")
	require.NoError(t, err, out)
	assert.Contains(t, out, "ClusterPool")
	assert.Contains(t, out, "left out")

	out, err = w.plugin("carol", "release", "mine", "--wait")
	require.NoError(t, err, out)
	w.untilGone(claim, moment)
	w.untilGone(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: claim.Spec.Namespace}}, patience)
}
