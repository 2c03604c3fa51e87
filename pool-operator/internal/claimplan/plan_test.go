// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package claimplan

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	hivev1 "github.com/muster-io/muster/apis/hive/v1"
	"github.com/muster-io/muster/pool-operator/internal/poolplan"
	"github.com/muster-io/muster/pool-operator/internal/poolview"
	"github.com/muster-io/muster/pool-operator/internal/testobj"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

func hours(n int) *metav1.Duration { return &metav1.Duration{Duration: time.Duration(n) * time.Hour} }

func TestLifetime(t *testing.T) {
	pool := func(standard, maximum *metav1.Duration) *hivev1.ClusterPool {
		return &hivev1.ClusterPool{Spec: hivev1.ClusterPoolSpec{ClaimLifetime: &hivev1.ClusterPoolClaimLifetime{Default: standard, Maximum: maximum}}}
	}
	for sentence, c := range map[string]struct {
		own, published *metav1.Duration
		pool           *hivev1.ClusterPool
		want           *metav1.Duration
	}{
		"a claim and a pool without limits":                 {pool: &hivev1.ClusterPool{}},
		"the claim's own counts":                            {own: hours(5), pool: &hivev1.ClusterPool{}, want: hours(5)},
		"the pool's default counts without an own":          {pool: pool(hours(3), nil), want: hours(3)},
		"the claim's own comes before the default":          {own: hours(5), pool: pool(hours(3), nil), want: hours(5)},
		"the maximum cuts the claim's own":                  {own: hours(5), pool: pool(nil, hours(4)), want: hours(4)},
		"the maximum cuts the default":                      {pool: pool(hours(9), hours(4)), want: hours(4)},
		"the maximum limits a claim without any":            {pool: pool(nil, hours(4)), want: hours(4)},
		"the claim's own stays when the pool is gone":       {own: hours(5), published: hours(4), want: hours(5)},
		"the published one stays when the pool is gone":     {published: hours(4), want: hours(4)},
		"a claim without a pool and without any has no end": {},
	} {
		t.Run(sentence, func(t *testing.T) {
			claim := &hivev1.ClusterClaim{Spec: hivev1.ClusterClaimSpec{Lifetime: c.own}, Status: hivev1.ClusterClaimStatus{Lifetime: c.published}}
			require.Equal(t, c.want, Lifetime(claim, c.pool))
		})
	}
}

func TestOwnerSubjects(t *testing.T) {
	for sentence, c := range map[string]struct {
		in      rbacv1.Subject
		want    rbacv1.Subject
		refused string
	}{
		"a user":                              {in: rbacv1.Subject{Kind: "User", Name: "a"}, want: rbacv1.Subject{Kind: "User", Name: "a", APIGroup: rbacv1.GroupName}},
		"a group":                             {in: rbacv1.Subject{Kind: "Group", Name: "a", APIGroup: rbacv1.GroupName}, want: rbacv1.Subject{Kind: "Group", Name: "a", APIGroup: rbacv1.GroupName}},
		"a service account":                   {in: rbacv1.Subject{Kind: "ServiceAccount", Name: "a", Namespace: "n"}, want: rbacv1.Subject{Kind: "ServiceAccount", Name: "a", Namespace: "n"}},
		"a service account without namespace": {in: rbacv1.Subject{Kind: "ServiceAccount", Name: "a"}, refused: "subjects[0]: a ServiceAccount needs a namespace"},
		"a service account by its user name": {in: rbacv1.Subject{Kind: "ServiceAccount", Name: "system:serviceaccount:n:a", Namespace: "n"},
			refused: `subjects[0]: "system:serviceaccount:n:a" is no name of a ServiceAccount; write name and namespace apart`},
		"a robot":                 {in: rbacv1.Subject{Kind: "Robot", Name: "a"}, refused: `subjects[0]: kind "Robot" is none of User, Group and ServiceAccount`},
		"a user without name":     {in: rbacv1.Subject{Kind: "User"}, refused: "subjects[0]: the name is missing"},
		"a user of another group": {in: rbacv1.Subject{Kind: "User", Name: "a", APIGroup: "x"}, refused: `subjects[0]: apiGroup "x" is not that of kind User`},
	} {
		t.Run(sentence, func(t *testing.T) {
			got, refused := ownerSubjects([]rbacv1.Subject{c.in})
			if c.refused != "" {
				require.Empty(t, got)
				require.Equal(t, []string{c.refused}, refused)
				return
			}
			require.Empty(t, refused)
			require.Equal(t, []rbacv1.Subject{c.want}, got)
		})
	}
}

// The API server takes 32,768 characters. A claim whose status it refuses would keep its cluster whatever the pool's maximum is.
func TestSubjectsThatAreLeftOutDoNotFillTheMessage(t *testing.T) {
	claim := &hivev1.ClusterClaim{}
	for range 1024 {
		claim.Spec.Subjects = append(claim.Spec.Subjects, rbacv1.Subject{Kind: "Robot"}, rbacv1.Subject{Kind: strings.Repeat("x", 1000), Name: "a", APIGroup: strings.Repeat("y", 1000)})
	}
	s := Snapshot{Claim: claim}
	note := s.rightsNote(&Cluster{})
	require.Less(t, len(note), 2000)
	require.Contains(t, note, "and 2043 more")
}

func TestOwnerRulesNameExactlyTheSecretsThatThereAre(t *testing.T) {
	ref := func(name string) *hivev1.LocalObjectReference { return &hivev1.LocalObjectReference{Name: name} }
	secrets := func(names ...string) []rbacv1.PolicyRule {
		return []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"secrets"}, ResourceNames: names, Verbs: []string{"get"}}}
	}
	for name, test := range map[string]struct {
		metadata hivev1.ClusterMetadata
		want     []rbacv1.PolicyRule
	}{
		"those that are named":    {hivev1.ClusterMetadata{AdminKubeconfigSecretRef: *ref("k"), MetadataJSONSecretRef: ref("m")}, secrets("k", "m")},
		"the pull secret":         {hivev1.ClusterMetadata{AdminKubeconfigSecretRef: *ref("k"), AdminPasswordSecretRef: ref("pull")}, secrets("k")},
		"the install-config":      {hivev1.ClusterMetadata{AdminKubeconfigSecretRef: *ref("k"), AdminPasswordSecretRef: ref("config")}, secrets("k")},
		"credentials of a cloud":  {hivev1.ClusterMetadata{AdminKubeconfigSecretRef: *ref("k"), MetadataJSONSecretRef: ref("cloud")}, secrets("k")},
		"the keys of the cluster": {hivev1.ClusterMetadata{AdminKubeconfigSecretRef: *ref("hosted-11111111-2222"), AdminPasswordSecretRef: ref("p")}, secrets("p")},
		"a key of machines":       {hivev1.ClusterMetadata{AdminKubeconfigSecretRef: *ref("k"), MetadataJSONSecretRef: ref("ssh")}, secrets("k")},
		"manifests":               {hivev1.ClusterMetadata{AdminKubeconfigSecretRef: *ref("k"), MetadataJSONSecretRef: ref("manifests")}, secrets("k")},
		"the installer's own":     {hivev1.ClusterMetadata{AdminKubeconfigSecretRef: *ref("k"), MetadataJSONSecretRef: ref("env")}, secrets("k")},
		"a certificate":           {hivev1.ClusterMetadata{AdminKubeconfigSecretRef: *ref("k"), MetadataJSONSecretRef: ref("tls")}, secrets("k")},
		"a key that signs tokens": {hivev1.ClusterMetadata{AdminKubeconfigSecretRef: *ref("k"), MetadataJSONSecretRef: ref("signer")}, secrets("k")},
		"certificates of a cloud": {hivev1.ClusterMetadata{AdminKubeconfigSecretRef: *ref("k"), MetadataJSONSecretRef: ref("ca")}, secrets("k")},
		"the access of nodes":     {hivev1.ClusterMetadata{AdminKubeconfigSecretRef: *ref("k"), MetadataJSONSecretRef: ref("nodes"), NodeAccessSecretRef: ref("nodes")}, secrets("k")},
		"the serving certificate": {hivev1.ClusterMetadata{AdminKubeconfigSecretRef: *ref("k"), MetadataJSONSecretRef: ref("hosted-11111111-2222-serving")}, secrets("k")},
		"none":                    {hivev1.ClusterMetadata{AdminKubeconfigSecretRef: *ref("pull"), AdminPasswordSecretRef: ref("")}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			cd := &hivev1.ClusterDeployment{ObjectMeta: metav1.ObjectMeta{Namespace: "x", Name: "x", UID: "11111111-2222-4333-8444-555555555555"}}
			cd.Spec.PullSecretRef, cd.Spec.Provisioning = ref("pull"), &hivev1.Provisioning{
				InstallConfigSecretRef: ref("config"), SSHPrivateKeySecretRef: ref("ssh"), ManifestsSecretRef: ref("manifests"),
				InstallerEnv: []corev1.EnvVar{{Name: "A", Value: "b"}, {Name: "C", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: "env"}}}}},
			}
			cd.Spec.CertificateBundles = []hivev1.CertificateBundle{{Name: "api", CertificateSecretRef: *ref("tls")}}
			cd.Spec.BoundServiceAccountSigningKeySecretRef = ref("signer")
			cd.Spec.Platform = hivev1.Platform{AWS: &runtime.RawExtension{Raw: []byte(`{"region":"r","credentialsSecretRef":{"name":"cloud"},"certificatesSecretRef":{"name":"ca"}}`)}}
			cd.Spec.ClusterMetadata, cd.Spec.ClusterPoolRef = &test.metadata, &hivev1.ClusterPoolReference{ClaimName: "c"}
			own := ClusterOf(cd)
			rules := ownerRules(&own, poolview.MachinePoolsNone)
			require.ElementsMatch(t, test.want, rules[2:])
			require.Equal(t, []string{"x"}, rules[0].ResourceNames)
		})
	}
}

func TestMachinePoolsAreForThePoolToAllow(t *testing.T) {
	foreign := hivev1.Platform{None: &runtime.RawExtension{Raw: []byte(`{}`)}}
	hosted := hivev1.Platform{Hosted: &hivev1.HostedPlatform{}}
	nodes := hivev1.Platform{Hosted: &hivev1.HostedPlatform{Nodes: &hivev1.HostedNodes{}}}
	workers := []hivev1.ClusterPoolMachinePool{{Name: "worker", Replicas: 1}}
	all := []string{"create", "delete", "get", "list", "patch", "update", "watch"}
	change := []string{"get", "list", "patch", "update", "watch"}
	for name, test := range map[string]struct {
		pool *hivev1.ClusterPool
		want []string
	}{
		"a platform with machines":          {&hivev1.ClusterPool{Spec: hivev1.ClusterPoolSpec{Platform: foreign}}, all},
		"the pool skips them":               {&hivev1.ClusterPool{Spec: hivev1.ClusterPoolSpec{Platform: foreign, SkipMachinePools: true}}, nil},
		"hosted clusters":                   {&hivev1.ClusterPool{Spec: hivev1.ClusterPoolSpec{Platform: hosted}}, nil},
		"hosted clusters that take nodes":   {&hivev1.ClusterPool{Spec: hivev1.ClusterPoolSpec{Platform: nodes, MachinePools: workers}}, change},
		"the same, without any MachinePool": {&hivev1.ClusterPool{Spec: hivev1.ClusterPoolSpec{Platform: nodes}}, change},
		"the same, and the pool skips them": {&hivev1.ClusterPool{Spec: hivev1.ClusterPoolSpec{Platform: nodes, MachinePools: workers, SkipMachinePools: true}}, nil},
		"no pool":                           {nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			s := Snapshot{Pool: test.pool}
			verbs := map[string][]string{}
			for _, rule := range ownerRules(&Cluster{Namespace: "x", Metadata: &hivev1.ClusterMetadata{}}, s.machinePools()) {
				verbs[rule.Resources[0]] = append(verbs[rule.Resources[0]], rule.Verbs...)
			}
			require.Equal(t, test.want, verbs["machinepools"])
			if test.want != nil {
				require.Equal(t, []string{"get", "patch", "update"}, verbs["machinepools/scale"])
			} else {
				require.NotContains(t, verbs, "machinepools/scale")
			}
		})
	}
}

func claim(change ...func(*hivev1.ClusterClaim)) *hivev1.ClusterClaim {
	c := &hivev1.ClusterClaim{ObjectMeta: metav1.ObjectMeta{Namespace: simNamespace, Name: "a", UID: "uid-a", ResourceVersion: "1", CreationTimestamp: metav1.NewTime(noon)}}
	c.Spec.ClusterPoolName = "p"
	for _, f := range change {
		f(c)
	}
	return c
}

// named gives the claim a cluster's name, as the operator does.
func named(cluster string) func(*hivev1.ClusterClaim) {
	return func(c *hivev1.ClusterClaim) {
		c.Spec.Namespace, c.Finalizers = cluster, []string{hivev1.FinalizerClusterClaim}
	}
}

func free(name string, change ...func(*Cluster)) Cluster {
	c := Cluster{Namespace: name, UID: types.UID("uid-" + name), ResourceVersion: "7", Created: noon, Installed: true, Pool: types.NamespacedName{Namespace: simNamespace, Name: "p"}}
	for _, f := range change {
		f(&c)
	}
	return c
}

func of(name string, uid types.UID) func(*Cluster) {
	return func(c *Cluster) { c.ClaimName, c.ClaimUID, c.ClaimedAt = name, uid, noon }
}

func TestPlan(t *testing.T) {
	pool := &hivev1.ClusterPool{}
	record := RecordClaim{Cluster: "x", UID: "uid-x", ResourceVersion: "7", At: noon, Why: WhyAssigned}
	verify := VerifyCluster{Cluster: "x", Why: WhyDoubt}
	deleted := func(c *hivev1.ClusterClaim) { c.DeletionTimestamp = new(metav1.NewTime(noon)) }
	for sentence, c := range map[string]struct {
		in     Snapshot
		action Action
		reason string // of Pending, if it changes
	}{
		"a claim that names a free cluster takes it": {
			in: Snapshot{Claim: claim(named("x")), Pool: pool, Own: new(free("x"))}, action: record, reason: hivev1.ReasonClusterAssigned,
		},
		"also when its pool is being deleted, because the cluster may be its own already": {
			in:     Snapshot{Claim: claim(named("x")), Pool: &hivev1.ClusterPool{ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: new(metav1.NewTime(noon))}}, Own: new(free("x"))},
			action: record, reason: hivev1.ReasonClusterAssigned,
		},
		"a cluster of another pool is never taken": {
			in:     Snapshot{Claim: claim(named("x")), Pool: pool, Own: new(free("x", func(c *Cluster) { c.Pool.Namespace = "elsewhere" })), Verified: true},
			action: ReturnCluster{Why: WhyLost}, reason: hivev1.ReasonNoClusters,
		},
		"a cluster of no pool is never taken": {
			in:     Snapshot{Claim: claim(named("x")), Pool: pool, Own: new(free("x", func(c *Cluster) { c.Pool = types.NamespacedName{} })), Verified: true},
			action: ReturnCluster{Why: WhyLost}, reason: hivev1.ReasonNoClusters,
		},
		"before a claim leaves a cluster the truth is looked up": {
			in: Snapshot{Claim: claim(named("x")), Pool: pool, Own: new(free("x", of("b", "uid-b")))}, action: verify,
		},
		"a claim that leaves a cluster gets another at once": {
			in:     Snapshot{Claim: claim(named("x")), Pool: pool, Own: new(free("x", of("b", "uid-b"))), Verified: true, Clusters: []Cluster{free("y")}, Claims: []Waiter{WaiterOf(claim(named("x")))}},
			action: AssignCluster{Cluster: "y", Why: WhyOldest}, reason: hivev1.ReasonNoClusters,
		},
		"a claim waits for a paused cluster that it names": {
			in:     Snapshot{Claim: claim(named("x")), Pool: pool, Own: new(free("x", func(c *Cluster) { c.Paused = true })), Verified: true},
			reason: hivev1.ReasonClusterAssigned,
		},
		"a claim of the same name and another UID has nothing": {
			in: Snapshot{Claim: claim(named("x")), Pool: pool, Own: new(free("x", of("a", "uid-of-another")))}, action: verify,
		},
		"a cluster that was claimed before UIDs were recorded gets the UID": {
			in:     Snapshot{Claim: claim(named("x")), Pool: pool, Own: new(free("x", of("a", "")))},
			action: RecordClaim{Cluster: "x", UID: "uid-x", ResourceVersion: "7", At: noon, Why: WhyUnidentified}, reason: hivev1.ReasonClusterClaimed,
		},
		"a cluster that does not say when it was claimed gets the time, so that it does not hibernate by the time of its installation": {
			in:     Snapshot{Claim: claim(named("x")), Pool: pool, Own: new(free("x", of("a", "uid-a"), func(c *Cluster) { c.ClaimedAt = time.Time{} }))},
			action: RecordClaim{Cluster: "x", UID: "uid-x", ResourceVersion: "7", At: noon, Why: WhyUnidentified}, reason: hivev1.ReasonClusterClaimed,
		},
		"a cluster that missed its claim says so no more": {
			in:     Snapshot{Claim: claim(named("x")), Pool: pool, Own: new(free("x", of("a", "uid-a"), func(c *Cluster) { c.OrphanReason = hivev1.ReasonClaimNotRestored }))},
			action: ReportMissing{Cluster: "x", UID: "uid-x", ResourceVersion: "7", Found: true, Why: WhyFound}, reason: hivev1.ReasonClusterClaimed,
		},
		"a cluster without UID is not this claim's unless the claim names it": {
			in: Snapshot{Claim: claim(), Pool: pool, Clusters: []Cluster{free("x", of("a", ""))}}, reason: hivev1.ReasonNoClusters,
		},
		"a claim whose name for its cluster was lost gets it back": {
			in: Snapshot{Claim: claim(), Pool: pool, Clusters: []Cluster{free("x", of("a", "uid-a"))}}, action: AssignCluster{Cluster: "x", Why: WhyRecorded},
		},
		"subjects wait for the cluster's metadata": {
			in:     Snapshot{Claim: claim(named("x"), func(c *hivev1.ClusterClaim) { c.Spec.Subjects = subjects() }), Pool: pool, Own: new(free("x", of("a", "uid-a")))},
			reason: hivev1.ReasonClusterAssigned,
		},
		"a paused claim is left alone": {
			in: Snapshot{Claim: claim(func(c *hivev1.ClusterClaim) {
				c.Annotations = map[string]string{hivev1.AnnotationReconcilePause: "true"}
			}), Pool: pool, Clusters: []Cluster{free("x")}},
		},
		"also when the annotation says True": {
			in: Snapshot{Claim: claim(func(c *hivev1.ClusterClaim) {
				c.Annotations = map[string]string{hivev1.AnnotationReconcilePause: "True"}
			}), Pool: pool, Clusters: []Cluster{free("x")}},
		},
		"a cluster that the pool decided to delete is not given out": {
			in: Snapshot{Claim: claim(), Pool: &hivev1.ClusterPool{Status: hivev1.ClusterPoolStatus{Operations: []hivev1.ClusterPoolOperation{
				{Namespace: "x", Kind: hivev1.OperationDelete},
			}}}, Clusters: []Cluster{free("x")}, Claims: []Waiter{WaiterOf(claim())}}, reason: hivev1.ReasonNoClusters,
		},
		"a cluster that does not resume in time is not given out": {
			in: Snapshot{Claim: claim(), Pool: &hivev1.ClusterPool{Spec: hivev1.ClusterPoolSpec{HibernationConfig: &hivev1.HibernationConfig{ResumeTimeout: hours(1)}}},
				Clusters: []Cluster{free("x", func(c *Cluster) { c.ResumingSince = noon.Add(-time.Hour) })}, Claims: []Waiter{WaiterOf(claim())}}, reason: hivev1.ReasonNoClusters,
		},
		"a pool that is being deleted gives out nothing": {
			in:     Snapshot{Claim: claim(), Pool: &hivev1.ClusterPool{ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: new(metav1.NewTime(noon))}}, Clusters: []Cluster{free("x")}},
			reason: hivev1.ReasonClaimPoolDeleting,
		},
		"without a pool nothing is given out": {in: Snapshot{Claim: claim(), Clusters: []Cluster{free("x")}}, reason: hivev1.ReasonPoolNotFound},
		"before a deleted claim goes the truth is looked up": {
			in: Snapshot{Claim: claim(named("x"), deleted), Pool: pool}, action: verify,
		},
		"a deleted claim goes when its cluster is gone": {
			in: Snapshot{Claim: claim(named("x"), deleted), Pool: pool, Verified: true}, action: DropFinalizer{Why: WhyReleased},
		},
		"a deleted claim goes when the cluster is not its own, and leaves the rights of others alone": {
			in:     Snapshot{Claim: claim(named("x"), deleted), Pool: pool, Own: new(free("x", of("b", "uid-b"))), Verified: true, Role: &rbacv1.Role{}, Binding: &rbacv1.RoleBinding{}},
			action: DropFinalizer{Why: WhyReleased},
		},
		"rights that outlive the cluster are taken away": {
			in:     Snapshot{Claim: claim(named("x"), deleted), Pool: pool, Verified: true, Binding: &rbacv1.RoleBinding{}},
			action: RevokeRights{Cluster: "x", Binding: true, Why: WhyDeleted},
		},
		"a marked cluster is deleted when its pool is gone": {
			in:     Snapshot{Claim: claim(named("x"), deleted), Own: new(free("x", of("a", "uid-a"), func(c *Cluster) { c.Marked = true }))},
			action: ReleaseCluster{Cluster: "x", UID: "uid-x", ResourceVersion: "7", Why: WhyDeleted},
		},
		"a deleted claim that was never given anything needs no goodbye": {in: Snapshot{Claim: claim(deleted), Pool: pool}},
	} {
		t.Run(sentence, func(t *testing.T) {
			d := Plan(noon, c.in)
			require.Equal(t, c.action, d.Action)
			reason := ""
			if d.Status != nil {
				reason = hivev1.FindCondition(d.Status.Conditions, hivev1.ClusterClaimPending).Reason
			}
			require.Equal(t, c.reason, reason)
		})
	}
}

func TestPendingNeverComesBack(t *testing.T) {
	c := claim(named("x"), func(c *hivev1.ClusterClaim) {
		c.Spec.Subjects = subjects()
		c.Status.Conditions = []hivev1.Condition{{Type: hivev1.ClusterClaimPending, Status: corev1.ConditionFalse, Reason: hivev1.ReasonClusterClaimed, Message: "Cluster claimed", LastTransitionTime: metav1.NewTime(noon)}}
	})
	own := free("x", of("a", "uid-a"), func(c *Cluster) { c.Metadata, c.ObservedPower = &hivev1.ClusterMetadata{}, hivev1.PowerStateRunning })
	d := Plan(noon, Snapshot{Claim: c, Pool: &hivev1.ClusterPool{}, Own: &own})
	require.IsType(t, GrantRights{}, d.Action, "the rights are restored")
	require.Equal(t, corev1.ConditionFalse, hivev1.FindCondition(d.Status.Conditions, hivev1.ClusterClaimPending).Status)
}

// A cluster that gets its machines by the claim still reports from before it that it runs; it has no nodes.
func TestAClusterThatWaitsForAClaimDoesNotRunForIt(t *testing.T) {
	waits := func(c *Cluster) { c.ObservedPower, c.WaitsForClaim = hivev1.PowerStateRunning, true }
	for name, s := range map[string]Snapshot{
		"it does not record the claim yet":             {Claim: claim(named("x")), Pool: &hivev1.ClusterPool{}, Own: new(free("x", waits))},
		"it records the claim and has not seen it yet": {Claim: claim(named("x")), Pool: &hivev1.ClusterPool{}, Own: new(free("x", waits, of("a", "uid-a")))},
	} {
		t.Run(name, func(t *testing.T) {
			said := hivev1.FindCondition(Plan(noon, s).Status.Conditions, hivev1.ClusterClaimRunning)
			require.Equal(t, corev1.ConditionFalse, said.Status)
			require.Equal(t, hivev1.ReasonResuming, said.Reason)
			s.Own.WaitsForClaim = false
			require.Equal(t, corev1.ConditionTrue, hivev1.FindCondition(Plan(noon, s).Status.Conditions, hivev1.ClusterClaimRunning).Status)
		})
	}
}

// A cluster is paused by its subjects as well as by its administrators, so that a pause keeps no rights.
func TestAPauseOfTheClusterKeepsNoRights(t *testing.T) {
	metadata := &hivev1.ClusterMetadata{AdminKubeconfigSecretRef: hivev1.LocalObjectReference{Name: "k"}}
	paused := func(c *Cluster) { c.Paused = true }
	deleting := func(c *Cluster) { c.Deleting = true }
	unidentified := func(c *Cluster) { c.ClaimUID = "" }
	user := func(name string) rbacv1.Subject {
		return rbacv1.Subject{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: name}
	}
	foreign := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "admin"}
	rules := ownerRules(new(free("x", func(c *Cluster) { c.Metadata = metadata })), poolview.MachinePoolsNone)
	grant := func(role, binding, replace bool) GrantRights {
		return GrantRights{Cluster: "x", UID: "uid-x", Rules: rules, Subjects: []rbacv1.Subject{user("bob")}, Role: role, Binding: binding, Replace: replace, Why: WhyRights}
	}
	revoke := func(role bool, why Why) RevokeRights {
		return RevokeRights{Cluster: "x", Role: role, Binding: true, Why: why}
	}
	for sentence, c := range map[string]struct {
		subjects []rbacv1.Subject
		bound    rbacv1.RoleRef // of the RoleBinding that there is, if it has a name
		change   []func(*Cluster)
		want     Action
	}{
		"a subject leaves a paused cluster":               {[]rbacv1.Subject{user("bob")}, OwnerRoleRef(), []func(*Cluster){paused}, grant(false, true, false)},
		"all subjects leave a paused cluster":             {nil, OwnerRoleRef(), []func(*Cluster){paused}, revoke(true, WhyNoSubjects)},
		"a subject comes to a paused cluster":             {[]rbacv1.Subject{user("bob")}, rbacv1.RoleRef{}, []func(*Cluster){paused}, grant(false, true, false)},
		"the cluster does not identify its claim":         {[]rbacv1.Subject{user("bob")}, OwnerRoleRef(), []func(*Cluster){paused, unidentified}, grant(false, true, false)},
		"a subject leaves a cluster that ends":            {[]rbacv1.Subject{user("bob")}, OwnerRoleRef(), []func(*Cluster){deleting}, grant(false, true, false)},
		"all subjects leave a cluster that ends":          {nil, OwnerRoleRef(), []func(*Cluster){deleting}, revoke(true, WhyNoSubjects)},
		"a subject comes to a cluster that ends":          {[]rbacv1.Subject{user("bob")}, rbacv1.RoleRef{}, []func(*Cluster){deleting}, nil},
		"a binding to another role in one that is paused": {[]rbacv1.Subject{user("bob")}, foreign, []func(*Cluster){paused}, grant(false, true, true)},
		"a binding to another role in one that ends":      {[]rbacv1.Subject{user("bob")}, foreign, []func(*Cluster){deleting}, revoke(false, WhyRights)},
	} {
		t.Run(sentence, func(t *testing.T) {
			own := free("x", append([]func(*Cluster){of("a", "uid-a"), func(c *Cluster) { c.Metadata = metadata }}, c.change...)...)
			s := Snapshot{Claim: claim(named("x"), func(claim *hivev1.ClusterClaim) { claim.Spec.Subjects = c.subjects }), Own: &own, Role: &rbacv1.Role{Rules: rules}}
			if c.bound.Name != "" {
				s.Binding = &rbacv1.RoleBinding{Subjects: []rbacv1.Subject{user("alice"), user("bob")}, RoleRef: c.bound}
			}
			require.Equal(t, c.want, Plan(noon, s).Action)
		})
	}
}

func TestAssignIsDeterministic(t *testing.T) {
	waiting := []Waiter{{Name: "b", UID: "b", Created: noon}, {Name: "a", UID: "a", Created: noon}, {Name: "0", UID: "0", Created: noon.Add(time.Second)}}
	clusters := []Cluster{free("y"), free("x"), free("w", func(c *Cluster) { c.Created, c.ObservedPower = noon.Add(time.Second), hivev1.PowerStateRunning })}
	require.Equal(t, map[types.UID]string{"a": "x", "b": "y", "0": "w"}, assign(waiting, clusters, hivev1.ClaimPolicyOldestFirst))
	require.Equal(t, map[types.UID]string{"a": "w", "b": "x", "0": "y"}, assign(waiting, clusters, hivev1.ClaimPolicyRunningFirst))
	require.Equal(t, "b", waiting[0].Name, "the arguments are left as they are")
	require.Equal(t, map[types.UID]string{"a": "y"}, assign(waiting, clusters[:1], ""))
}

func TestGiveUp(t *testing.T) {
	release := ReleaseCluster{Cluster: "x", UID: "uid-x", ResourceVersion: "7", Why: WhyOrphaned}
	missing := func(restored bool) ReportMissing {
		return ReportMissing{Cluster: "x", UID: "uid-x", ResourceVersion: "7", Restored: restored, Why: WhyOrphaned}
	}
	restored := func(c *Cluster) { c.Restored = true }
	since := func(reason string, ago time.Duration) func(*Cluster) {
		return func(c *Cluster) { c.OrphanReason, c.OrphanedSince = reason, noon.Add(-ago) }
	}
	for sentence, c := range map[string]struct {
		own       Cluster
		binding   *rbacv1.RoleBinding
		abandoned bool
		action    Action
		wait      time.Duration
	}{
		"rights go at once":                                {own: free("x", of("a", "1")), binding: &rbacv1.RoleBinding{}, action: RevokeRights{Cluster: "x", Binding: true, Why: WhyOrphaned}},
		"the cluster says that its claim is gone":          {own: free("x", of("a", "1")), action: missing(false)},
		"and is kept for a while":                          {own: free("x", of("a", "1"), since(hivev1.ReasonClaimDeleted, time.Minute)), wait: OrphanGrace - time.Minute},
		"and then goes":                                    {own: free("x", of("a", "1"), since(hivev1.ReasonClaimDeleted, OrphanGrace)), action: release},
		"one that no user ever had goes at once":           {own: free("x", of("a", "1")), abandoned: true, action: release},
		"one that is marked goes at once":                  {own: free("x", of("a", "1"), func(c *Cluster) { c.Marked = true }), action: release},
		"one that is protected stays":                      {own: free("x", of("a", "1"), since(hivev1.ReasonClaimDeleted, OrphanGrace), func(c *Cluster) { c.Protected = true })},
		"a restored cluster says that it waits":            {own: free("x", of("a", "1"), restored), action: missing(true)},
		"and waits, with its rights, for as long as it is": {own: free("x", of("a", "1"), restored, since(hivev1.ReasonClaimNotRestored, 1000*time.Hour)), binding: &rbacv1.RoleBinding{}},
		"without the label its time begins":                {own: free("x", of("a", "1"), since(hivev1.ReasonClaimNotRestored, 1000*time.Hour)), action: missing(false)},
		"a paused cluster is left alone":                   {own: free("x", of("a", "1"), func(c *Cluster) { c.Paused = true })},
		"but not the rights in its namespace":              {own: free("x", of("a", "1"), func(c *Cluster) { c.Paused = true }), binding: &rbacv1.RoleBinding{}, action: RevokeRights{Cluster: "x", Binding: true, Why: WhyOrphaned}},
		"nor those of a cluster that is being deleted":     {own: free("x", of("a", "1"), func(c *Cluster) { c.Deleting = true }), binding: &rbacv1.RoleBinding{}, action: RevokeRights{Cluster: "x", Binding: true, Why: WhyOrphaned}},
		"a paused cluster that was restored keeps them":    {own: free("x", of("a", "1"), restored, func(c *Cluster) { c.Paused = true }), binding: &rbacv1.RoleBinding{}},
		"a free cluster is not given up":                   {own: free("x")},
	} {
		t.Run(sentence, func(t *testing.T) {
			action, wait := GiveUp(noon, Snapshot{Own: &c.own, Binding: c.binding}, c.abandoned)
			require.Equal(t, c.action, action)
			require.Equal(t, c.wait, wait)
		})
	}
}

func TestAClaimDoesNotWaitForAClusterThatItsPoolHasGivenUp(t *testing.T) {
	pool := &hivev1.ClusterPool{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "p"}, Spec: hivev1.ClusterPoolSpec{BaseDomain: "a.example"}}
	claim := &hivev1.ClusterClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "c", UID: "c", CreationTimestamp: metav1.NewTime(noon)}, Spec: hivev1.ClusterClaimSpec{ClusterPoolName: "p"}}
	for sentence, c := range map[string]struct {
		version string
		began   time.Time
		want    hivev1.WaitReason
	}{
		"a cluster of the present version takes as long as it takes": {poolplan.Version(pool.Spec), noon.Add(-2 * time.Hour), hivev1.WaitProvisioning},
		"one of an earlier version may become ready":                 {"earlier", noon.Add(-time.Minute), hivev1.WaitProvisioning},
		"one of an earlier version that takes long is replaced":      {"earlier", noon.Add(-2 * time.Hour), hivev1.WaitPoolEmpty},
	} {
		t.Run(sentence, func(t *testing.T) {
			s := Snapshot{Claim: claim, Pool: pool, Clusters: []Cluster{{Namespace: "p-a", Name: "p-a", UID: "a", Version: c.version, Created: c.began}}}
			d := Plan(noon, s)
			require.NotNil(t, d.Status)
			require.Equal(t, c.want, d.Status.WaitingFor)
		})
	}
}

// A cluster that never runs again is no use to a claim, although it is installed and the oldest.
func TestAClusterWhoseDataIsMissingIsGivenToNoClaim(t *testing.T) {
	missing := func(c *Cluster) { c.DataMissing = true }
	s := Snapshot{Claim: claim(), Pool: &hivev1.ClusterPool{}, Clusters: []Cluster{free("x", missing)}}
	s.Claims = []Waiter{WaiterOf(s.Claim)}
	require.Nil(t, Plan(noon, s).Action)

	s.Clusters = append(s.Clusters, free("y"))
	require.Equal(t, AssignCluster{Cluster: "y", Why: WhyOldest}, Plan(noon, s).Action)

	running := clusterRunning(new(free("x", missing, of("a", "uid-a"), func(c *Cluster) { c.Power = hivev1.PowerStateHibernating })))
	require.Equal(t, hivev1.ReasonResuming, running.Reason)
	require.Contains(t, running.Message, "data of the assigned cluster is missing", "setting powerState does not help")
}

// A user cannot add a name to a pool that has no list of names, nor wait for one that is paused.
func TestAClaimSaysWhatKeepsItsPoolFromCreating(t *testing.T) {
	exhausted := hivev1.Condition{Type: hivev1.ClusterPoolCapacityAvailable, Status: "False", Reason: hivev1.ReasonInventoryExhausted, Message: "spec.inventory is no object"}
	for sentence, c := range map[string]struct {
		change testobj.PoolOption
		reason hivev1.WaitReason
		want   string
	}{
		"names are taken":            {testobj.Inventory("red"), hivev1.WaitInventoryExhausted, "every name of the pool's inventory is taken; release a cluster or add a name"},
		"the inventory is no object": {testobj.UnusableInventory(`[]`), hivev1.WaitInventoryExhausted, "spec.inventory is no object"},
		"the pool is paused": {testobj.PoolChanges(noon)["Paused"], hivev1.WaitPoolFrozen,
			"the pool is paused, so that it creates none; remove its annotation hive.openshift.io/reconcile-pause"},
	} {
		t.Run(sentence, func(t *testing.T) {
			pool := testobj.Pool("p", c.change)
			pool.Status.Conditions = []hivev1.Condition{exhausted}
			s := Snapshot{Claim: claim(), Pool: pool}
			s.Claims = []Waiter{WaiterOf(s.Claim)}
			status := Plan(noon, s).Status
			require.NotNil(t, status)
			require.Equal(t, c.reason, status.WaitingFor)
			require.Equal(t, noClusters+": "+c.want, hivev1.FindCondition(status.Conditions, hivev1.ClusterClaimPending).Message)
		})
	}
}
