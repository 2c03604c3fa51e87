// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package clusterdeployment_test

import (
	"context"
	"errors"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	fakeclient "sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	hivev1 "github.com/muster-io/muster/apis/hive/v1"
	"github.com/muster-io/muster/apis/outcome"
	"github.com/muster-io/muster/pool-operator/internal/controller/clusterdeployment"
	"github.com/muster-io/muster/pool-operator/internal/provision"
	"github.com/muster-io/muster/pool-operator/internal/provision/fake"
)

// manualClock is set by hand.
type manualClock struct{ now time.Time }

func (c *manualClock) Now() time.Time { return c.now }

func (c *manualClock) Since(t time.Time) time.Duration { return c.Now().Sub(t) }

// errCrash is what an operator that died would have said.
var errCrash = errors.New("crashed")

// writes counts what is written, by kind of write, and can make the n-th one fail: before it happened, or after, unheard of.
type writes struct {
	log    []string
	failAt int
	after  bool
	// refusal is the API server's answer to a Secret; nil when it takes it.
	refusal error
}

func (w *writes) do(what string, write func() error) error {
	w.log = append(w.log, what)
	if w.failAt != len(w.log) {
		return write()
	}
	if w.after {
		_ = write()
	}
	return errCrash
}

func (w *writes) intercept() interceptor.Funcs {
	return interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			return w.do("patch", func() error { return c.Patch(ctx, o, p, opts...) })
		},
		Apply: func(ctx context.Context, c client.WithWatch, o runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
			if w.refusal != nil {
				return w.refusal
			}
			return w.do("apply", func() error { return c.Apply(ctx, o, opts...) })
		},
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			if _, ours := o.(*hivev1.MachinePool); !ours { // users delete the others
				return c.Delete(ctx, o, opts...)
			}
			return w.do("delete", func() error { return c.Delete(ctx, o, opts...) })
		},
		SubResourceApply: func(ctx context.Context, c client.Client, sub string, o runtime.ApplyConfiguration, opts ...client.SubResourceApplyOption) error {
			return w.do("apply "+sub, func() error { return c.SubResource(sub).Apply(ctx, o, opts...) })
		},
	}
}

// shell is a controller over clients and clusters that are not real.
type shell struct {
	*testing.T
	client     client.Client
	writes     *writes
	backend    *fake.Backend
	clock      *manualClock
	reconciler *clusterdeployment.Reconciler
	key        client.ObjectKey
	uid        types.UID
	metrics    *clusterdeployment.Metrics
}

func scheme(t *testing.T) *runtime.Scheme {
	t.Helper()
	s := runtime.NewScheme()
	require.NoError(t, clientgoscheme.AddToScheme(s))
	require.NoError(t, hivev1.AddToScheme(s))
	return s
}

// newShell begins with one cluster, in a client that is not real.
func newShell(t *testing.T, change ...func(*hivev1.ClusterDeployment)) *shell {
	t.Helper()
	cluster := newCluster("blue-x", change...)
	cluster.UID = "11111111-0000-4000-8000-000000000000"
	s := &shell{T: t, writes: &writes{}, key: client.ObjectKeyFromObject(cluster), uid: cluster.UID}
	s.client = fakeclient.NewClientBuilder().WithScheme(scheme(t)).WithStatusSubresource(&hivev1.ClusterDeployment{}, &hivev1.MachinePool{}).
		WithObjects(cluster).WithInterceptorFuncs(s.writes.intercept()).Build()
	return s.begin()
}

// begin starts the first operator in a new backend.
func (s *shell) begin() *shell {
	s.backend, s.clock = fake.NewBackend(), &manualClock{now: time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)}
	s.backend.Now = s.clock.Now
	s.metrics = clusterdeployment.NewMetrics()
	s.restart()
	return s
}

func newCluster(name string, change ...func(*hivev1.ClusterDeployment)) *hivev1.ClusterDeployment {
	cluster := &hivev1.ClusterDeployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: name},
		Spec: hivev1.ClusterDeploymentSpec{ClusterName: "blue", BaseDomain: "example.org",
			Platform: hivev1.Platform{Hosted: &hivev1.HostedPlatform{}}},
	}
	for _, c := range change {
		c(cluster)
	}
	return cluster
}

func asleep(c *hivev1.ClusterDeployment) { c.Spec.PowerState = hivev1.PowerStateHibernating }

// restart is a new operator over what the old one left.
func (s *shell) restart() {
	s.reconciler = clusterdeployment.New(clusterdeployment.Deps{
		Client: s.client, Metadata: s.client, Live: s.client, MachinePools: s.client, Runtime: s.backend.Open(), Recorder: events.NewFakeRecorder(1000), Clock: s.clock,
		Metrics: s.metrics, DNSImage: "registry.example.com/coredns:1",
	})
}

func (s *shell) ref() provision.ClusterRef {
	return provision.ClusterRef{Namespace: s.key.Namespace, Name: s.key.Name, UID: s.uid}
}

func (s *shell) pass() (ctrl.Result, error) {
	return outcome.Reconciler[ctrl.Request](s.reconciler).Reconcile(s.Context(), ctrl.Request{NamespacedName: s.key})
}

// run reconciles until the controller has nothing more to do soon, moving the clock to when it asks for another pass. A crash restarts the operator.
func (s *shell) run() {
	s.Helper()
	for range 20 {
		result, err := s.pass()
		if errors.Is(err, errCrash) {
			s.restart()
			continue
		}
		require.NoError(s, err)
		if result.RequeueAfter == 0 || result.RequeueAfter >= 10*time.Second {
			return
		}
		s.clock.now = s.clock.now.Add(result.RequeueAfter)
	}
	s.Fatal("the controller did not come to rest")
}

func (s *shell) cluster() *hivev1.ClusterDeployment {
	s.Helper()
	cluster := &hivev1.ClusterDeployment{}
	require.NoError(s, s.client.Get(s.Context(), s.key, cluster))
	return cluster
}

func (s *shell) gone() bool {
	s.Helper()
	err := s.client.Get(s.Context(), s.key, &hivev1.ClusterDeployment{})
	return apierrors.IsNotFound(err)
}

func (s *shell) secrets() []corev1.Secret {
	s.Helper()
	list := &corev1.SecretList{}
	require.NoError(s, s.client.List(s.Context(), list, client.InNamespace(s.key.Namespace)))
	return list.Items
}

// edit changes the cluster as its user does; it is no write of the controller.
func (s *shell) edit(change func(*hivev1.ClusterDeployment)) {
	s.Helper()
	cluster := s.cluster()
	change(cluster)
	require.NoError(s, s.client.Update(s.Context(), cluster))
}

func (s *shell) delete() {
	s.Helper()
	require.NoError(s, s.client.Delete(s.Context(), s.cluster()))
}

func said(cluster *hivev1.ClusterDeployment, conditionType string) string {
	c := hivev1.FindCondition(cluster.Status.Conditions, conditionType)
	if c == nil {
		return ""
	}
	return string(c.Status) + "/" + c.Reason
}

// requireOwnSecrets checks that what spec.clusterMetadata names is there, once, and holds what the runtime keeps.
func (s *shell) requireOwnSecrets() {
	s.Helper()
	metadata := s.cluster().Spec.ClusterMetadata
	require.NotNil(s, metadata)
	names := []string{metadata.AdminKubeconfigSecretRef.Name, metadata.AdminPasswordSecretRef.Name, metadata.MetadataJSONSecretRef.Name}
	secrets := s.secrets()
	require.Len(s, secrets, len(names))
	content := map[string][]byte{}
	for _, secret := range secrets {
		require.True(s, slices.Contains(names, secret.Name), secret.Name)
		require.Len(s, secret.OwnerReferences, 1)
		maps.Copy(content, secret.Data)
	}
	access, err := s.backend.Open().Access(s.Context(), s.ref())
	require.NoError(s, err)
	require.Equal(s, access.Kubeconfig, content[hivev1.SecretKeyKubeconfig])
	require.Equal(s, access.Password, string(content[hivev1.SecretKeyPassword]))
	require.Contains(s, string(content[hivev1.SecretKeyMetadataJSON]), metadata.ClusterID)
}
