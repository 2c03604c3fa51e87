// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package clusterclaim

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/discovery"

	hivev1 "github.com/muster-io/muster/apis/hive/v1"
)

// foreignKinds are kinds of Hive that live in a cluster's namespace and whose definitions this API server does not have.
var foreignKinds = []string{
	"clusterdeploymentcustomizations", "clusterdeprovisions", "clusterprovisions", "clusterstates", "dnszones", "machinepools", "machinepools/scale", "syncidentityproviders", "syncsets",
}

// askedVerbs are all verbs that mean something to an API server, and one that means nothing.
var askedVerbs = []string{"get", "list", "watch", "create", "update", "patch", "delete", "deletecollection", "bind", "escalate", "impersonate", "approve", "sign", "operate"}

// resources returns group/resource of everything that the API server has, sub-resources included.
func (s *suite) resources() []string {
	s.t.Helper()
	client, err := discovery.NewDiscoveryClientForConfig(s.config)
	require.NoError(s.t, err)
	_, lists, err := client.ServerGroupsAndResources()
	require.NoError(s.t, err)
	found := map[string]bool{}
	for _, list := range lists {
		group, _, both := strings.Cut(list.GroupVersion, "/")
		if !both {
			group = ""
		}
		for i := range list.APIResources {
			found[group+"/"+list.APIResources[i].Name] = true
		}
	}
	for _, kind := range foreignKinds {
		found[hivev1.GroupName+"/"+kind] = true
	}
	all := make([]string, 0, len(found))
	for resource := range found {
		all = append(all, resource)
	}
	slices.Sort(all)
	return all
}

// rules are all that the API server grants a user in a namespace.
func (s *suite) rules(user, namespace string) []authorizationv1.ResourceRule {
	s.t.Helper()
	review := &authorizationv1.SelfSubjectRulesReview{Spec: authorizationv1.SelfSubjectRulesReviewSpec{Namespace: namespace}}
	require.NoError(s.t, s.as(user).Create(s.t.Context(), review))
	require.False(s.t, review.Status.Incomplete, review.Status.EvaluationError)
	return review.Status.ResourceRules
}

// concerns reports whether a rule may grant a verb on a kind: it leaves names out, and takes any pattern for one that fits.
func concerns(rule authorizationv1.ResourceRule, verb, group, resource string) bool {
	fits := func(patterns []string, value string) bool {
		return slices.ContainsFunc(patterns, func(p string) bool { return p == value || strings.Contains(p, "*") })
	}
	return fits(rule.Verbs, verb) && fits(rule.APIGroups, group) && fits(rule.Resources, resource)
}

// allowed asks the API server what the user may do, over every verb and kind that a rule concerns, with and without a name.
func (s *suite) allowed(user, namespace string, names ...string) []string {
	s.t.Helper()
	var allowed []string
	rules := s.rules(user, namespace)
	for _, resource := range s.resources() {
		group, path, _ := strings.Cut(resource, "/")
		kind, subresource, _ := strings.Cut(path, "/")
		for _, verb := range askedVerbs {
			if !slices.ContainsFunc(rules, func(r authorizationv1.ResourceRule) bool { return concerns(r, verb, group, path) }) {
				continue
			}
			for _, name := range append([]string{""}, names...) {
				review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
					User: user, Groups: []string{"system:authenticated"},
					ResourceAttributes: &authorizationv1.ResourceAttributes{
						Namespace: namespace, Verb: verb, Group: group, Resource: kind, Subresource: subresource, Name: name,
					},
				}}
				require.NoError(s.t, s.client.Create(s.t.Context(), review))
				if review.Status.Allowed {
					allowed = append(allowed, strings.TrimSpace(verb+" "+resource+" "+name))
				}
			}
		}
	}
	return allowed
}

// docs/spec/clusterclaim.md and README.md say the same.
func TestASubjectMayDoThisAndNothingElse(t *testing.T) {
	s := newSuite(t)
	s.pool("hosted")
	s.pool("machines", func(p *hivev1.ClusterPool) {
		p.Spec.Platform = hivev1.Platform{None: &runtime.RawExtension{Raw: []byte(`{}`)}}
	})
	s.pool("nodes", func(p *hivev1.ClusterPool) {
		p.Spec.Platform = hivev1.Platform{Hosted: &hivev1.HostedPlatform{Nodes: &hivev1.HostedNodes{}}}
		p.Spec.MachinePools = []hivev1.ClusterPoolMachinePool{{Name: "worker", Platform: hivev1.MachinePoolPlatform{AgentBareMetal: &hivev1.AgentBareMetalMachinePool{}}}}
	})
	hosted, machines, nodes := s.cluster("hosted"), s.cluster("machines"), s.cluster("nodes")
	for _, cd := range []*hivev1.ClusterDeployment{hosted, machines, nodes} {
		require.NoError(t, s.client.Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: cd.Namespace, Name: "pull-secret"}}))
	}
	s.start()
	s.claim("a", "hosted")
	s.claim("b", "machines")
	s.claim("c", "nodes")
	s.waitFor("a", hivev1.ClusterClaimPending, hivev1.ReasonClusterClaimed)
	s.waitFor("b", hivev1.ClusterClaimPending, hivev1.ReasonClusterClaimed)
	s.waitFor("c", hivev1.ClusterClaimPending, hivev1.ReasonClusterClaimed)

	expected := func(cluster string, also ...string) []string {
		want := s.allowed("other-user", cluster, cluster, "admin-kubeconfig", "admin-password", "pull-secret") // what everyone may do
		for _, verb := range []string{"list", "watch"} {
			for _, name := range []string{"", cluster, "admin-kubeconfig", "admin-password", "pull-secret"} { // a list is about all of them
				want = append(want, strings.TrimSpace(verb+" hive.openshift.io/clusterdeployments "+name))
			}
		}
		for _, verb := range []string{"get", "patch", "update"} {
			want = append(want, verb+" hive.openshift.io/clusterdeployments "+cluster)
		}
		return append(want, append(also, "get /secrets admin-kubeconfig", "get /secrets admin-password")...)
	}
	pools := func(cluster, resource string, verbs ...string) (rights []string) {
		for _, verb := range verbs {
			for _, name := range []string{"", cluster, "admin-kubeconfig", "admin-password", "pull-secret"} {
				rights = append(rights, strings.TrimSpace(verb+" hive.openshift.io/"+resource+" "+name))
			}
		}
		return rights
	}
	names := func(cluster string) []string {
		return []string{cluster, "admin-kubeconfig", "admin-password", "pull-secret"}
	}
	for user, cd := range map[string]*hivev1.ClusterDeployment{"user-of-a": hosted, "user-of-b": machines, "user-of-c": nodes} {
		require.True(t, s.eventually(func() bool { return s.may(user, cd.Namespace, "get", "secrets", "admin-kubeconfig") }), "the API server learns of rights in a moment")
	}
	unique := func(rights []string) []string { slices.Sort(rights); return slices.Compact(rights) }
	require.Equal(t, unique(expected(hosted.Namespace)), unique(s.allowed("user-of-a", hosted.Namespace, names(hosted.Namespace)...)))
	manages := append(pools(machines.Namespace, "machinepools", "create", "delete", "get", "list", "patch", "update", "watch"), pools(machines.Namespace, "machinepools/scale", "get", "patch", "update")...)
	require.Equal(t, unique(expected(machines.Namespace, manages...)), unique(s.allowed("user-of-b", machines.Namespace, names(machines.Namespace)...)))
	scales := append(pools(nodes.Namespace, "machinepools", "get", "list", "patch", "update", "watch"), pools(nodes.Namespace, "machinepools/scale", "get", "patch", "update")...)
	require.Equal(t, unique(expected(nodes.Namespace, scales...)), unique(s.allowed("user-of-c", nodes.Namespace, names(nodes.Namespace)...)))
	require.Equal(t, s.allowed("other-user", s.namespace), s.allowed("user-of-a", s.namespace), "and nothing in the namespace of the pool")

	skip := s.get("b")
	pool := &hivev1.ClusterPool{ObjectMeta: metav1.ObjectMeta{Namespace: skip.Namespace, Name: "machines"}}
	require.NoError(t, s.client.Patch(t.Context(), pool, mergePatchOf(`{"spec":{"skipMachinePools":true}}`)))
	require.True(t, s.eventually(func() bool { return !s.may("user-of-b", machines.Namespace, "list", "machinepools", "") }), "the pool allows none any more")
}

// may asks about one right.
func (s *suite) may(user, namespace, verb, resource, name string) bool {
	group := hivev1.GroupName
	if resource == "secrets" {
		group = ""
	}
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{User: user, ResourceAttributes: &authorizationv1.ResourceAttributes{
		Namespace: namespace, Verb: verb, Group: group, Resource: resource, Name: name,
	}}}
	require.NoError(s.t, s.client.Create(s.t.Context(), review))
	return review.Status.Allowed
}
