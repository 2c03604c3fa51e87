// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package pooladmin

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/muster-io/muster/apis/controlplanetest"
	hivev1 "github.com/muster-io/muster/apis/hive/v1"
	"github.com/muster-io/muster/pool-operator/internal/adminplan"
)

const operatorUser = "system:serviceaccount:muster:pooladmins"

type suite struct {
	t      *testing.T
	client client.Client
}

func (s *suite) create(obj client.Object) {
	s.t.Helper()
	if err := s.client.Create(s.t.Context(), obj); !apierrors.IsAlreadyExists(err) {
		require.NoError(s.t, err)
	}
}

func (s *suite) eventually(condition func() bool) {
	s.t.Helper()
	require.Eventually(s.t, condition, time.Minute, 10*time.Millisecond)
}

var marker = regexp.MustCompile(`(?m)^// \+kubebuilder:rbac:groups=([^,]*),resources=([^,]+),(?:resourceNames=([^,]+),)?verbs=(\S+)$`)

// start runs the controller with the rights of the markers above Reconcile and no others.
func start(t *testing.T) *suite {
	cfg := controlplanetest.Start(t)
	s := runtime.NewScheme()
	require.NoError(t, scheme.AddToScheme(s))
	require.NoError(t, hivev1.AddToScheme(s))
	c, err := client.New(cfg, client.Options{Scheme: s})
	require.NoError(t, err)
	out := &suite{t: t, client: c}
	source, err := os.ReadFile("controller.go")
	require.NoError(t, err)
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "pooladmins"}}
	for _, m := range marker.FindAllStringSubmatch(string(source), -1) {
		rule := rbacv1.PolicyRule{APIGroups: []string{strings.Trim(m[1], `"`)}, Resources: strings.Split(m[2], ";"), Verbs: strings.Split(m[4], ";")}
		if m[3] != "" {
			rule.ResourceNames = []string{m[3]}
		}
		role.Rules = append(role.Rules, rule)
	}
	require.Len(t, role.Rules, 4)
	out.create(role)
	out.create(&rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "pooladmins"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "pooladmins"},
		Subjects: []rbacv1.Subject{{Kind: "User", APIGroup: rbacv1.GroupName, Name: operatorUser}},
	})
	out.create(&rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: hivev1.PoolAdminClusterRoleName},
		Rules:      []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"get", "list"}}},
	})
	mine := rest.CopyConfig(cfg)
	mine.Impersonate = rest.ImpersonationConfig{UserName: operatorUser}
	byObject := map[client.Object]cache.ByObject{}
	CacheBindings(byObject)
	mgr, err := ctrl.NewManager(mine, ctrl.Options{
		Scheme: s, Metrics: metricsserver.Options{BindAddress: "0"}, Cache: cache.Options{ByObject: byObject},
		Controller: config.Controller{SkipNameValidation: new(true)},
	})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	require.NoError(t, AddIndexes(ctx, mgr.GetFieldIndexer()))
	require.NoError(t, New(Deps{Client: mgr.GetClient()}).SetupWithManager(mgr))
	done := make(chan error, 1)
	go func() { done <- mgr.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("ending the controller: %v", err)
		}
	})
	return out
}

func (s *suite) namespace(labels map[string]string) string {
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "admins-", Labels: labels}}
	require.NoError(s.t, s.client.Create(s.t.Context(), ns))
	return ns.Name
}

// cluster creates a cluster of the pool, in a namespace that is labelled for another one.
func (s *suite) cluster(poolNamespace, labelledFor string) string {
	name := s.namespace(map[string]string{hivev1.LabelNamespaceClusterPoolName: "p", hivev1.LabelNamespaceClusterPoolNamespace: labelledFor})
	cd := &hivev1.ClusterDeployment{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: name}}
	cd.Spec.ClusterName, cd.Spec.BaseDomain, cd.Spec.Platform = name, "example.com", hivev1.Platform{Hosted: &hivev1.HostedPlatform{}}
	cd.Spec.ClusterPoolRef = &hivev1.ClusterPoolReference{Namespace: poolNamespace, PoolName: "p"}
	require.NoError(s.t, s.client.Create(s.t.Context(), cd))
	return name
}

func (s *suite) bind(namespace, name string, users ...string) *rbacv1.RoleBinding {
	binding := &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, RoleRef: adminplan.RoleRef()}
	for _, user := range users {
		binding.Subjects = append(binding.Subjects, rbacv1.Subject{Kind: "User", APIGroup: rbacv1.GroupName, Name: user})
	}
	require.NoError(s.t, s.client.Create(s.t.Context(), binding))
	return binding
}

// admins returns who has the rights of admins in the namespace; nil when there is no copy.
func (s *suite) admins(namespace string) []string {
	binding := &rbacv1.RoleBinding{}
	if err := s.client.Get(s.t.Context(), types.NamespacedName{Namespace: namespace, Name: hivev1.PoolAdminRoleBindingName}, binding); err != nil {
		require.True(s.t, apierrors.IsNotFound(err), "%v", err)
		return nil
	}
	var names []string
	for _, subject := range binding.Subjects {
		names = append(names, subject.Name)
	}
	return names
}

func TestAdminsOfAPoolAreAdminsOfItsClustersOnly(t *testing.T) {
	s := start(t)
	team, rival := s.namespace(nil), s.namespace(nil)
	ours, theirs := s.cluster(team, team), s.cluster(rival, rival)
	pretender := s.cluster(team, rival)
	first := s.bind(team, "first", "ada", "bob")
	second := s.bind(team, "second", "bob", "cyd")
	s.eventually(func() bool { return slices.Equal(s.admins(ours), []string{"ada", "bob", "cyd"}) })
	later := s.cluster(team, team)
	s.eventually(func() bool { return slices.Equal(s.admins(later), []string{"ada", "bob", "cyd"}) })
	require.Nil(t, s.admins(theirs), "a pool of the same name elsewhere shares nothing")
	require.Nil(t, s.admins(pretender), "the namespace does not say that it belongs to the pool")

	migrated := s.cluster(team, "")
	require.Nil(t, s.admins(migrated), "the name of the pool alone says nothing")
	label := fmt.Appendf(nil, `{"metadata":{"labels":{%q:%q}}}`, hivev1.LabelNamespaceClusterPoolNamespace, team)
	require.NoError(t, s.client.Patch(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: migrated}}, client.RawPatch(types.MergePatchType, label)))
	s.eventually(func() bool { return slices.Equal(s.admins(migrated), []string{"ada", "bob", "cyd"}) })

	tampered := &rbacv1.RoleBinding{}
	require.NoError(t, s.client.Get(t.Context(), types.NamespacedName{Namespace: ours, Name: hivev1.PoolAdminRoleBindingName}, tampered))
	tampered.Subjects = append(tampered.Subjects, rbacv1.Subject{Kind: "User", APIGroup: rbacv1.GroupName, Name: "mallory"})
	require.NoError(t, s.client.Update(t.Context(), tampered))
	s.eventually(func() bool { return slices.Equal(s.admins(ours), []string{"ada", "bob", "cyd"}) })

	require.NoError(t, s.client.Delete(t.Context(), first))
	s.eventually(func() bool { return slices.Equal(s.admins(ours), []string{"bob", "cyd"}) })
	require.NoError(t, s.client.Delete(t.Context(), second))
	s.eventually(func() bool { return s.admins(ours) == nil && s.admins(later) == nil })
}

// A user may call a binding in the namespace of pools as its copies are called.
func TestABindingWithTheNameOfACopyStays(t *testing.T) {
	s := start(t)
	team := s.namespace(nil)
	source := s.bind(team, hivev1.PoolAdminRoleBindingName, "ada")
	ours := s.cluster(team, team)
	s.eventually(func() bool { return slices.Equal(s.admins(ours), []string{"ada"}) })
	require.NoError(t, s.client.Patch(t.Context(), source, client.RawPatch(types.MergePatchType, []byte(`{"subjects":[{"kind":"User","name":"bob"}]}`))))
	s.eventually(func() bool { return slices.Equal(s.admins(ours), []string{"bob"}) })
	require.Equal(t, []string{"bob"}, s.admins(team))
}
