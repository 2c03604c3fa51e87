// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package console_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	hivev1 "github.com/muster-io/muster/apis/hive/v1"
)

// status writes the status of an object, as its operator does.
func (s *kubeSite) status(object client.Object, change func()) {
	s.t.Helper()
	before := object.DeepCopyObject().(client.Object)
	change()
	require.NoError(s.t, s.admin.Status().Patch(s.t.Context(), object, client.MergeFrom(before)))
}

// claims are those of the namespace.
func (s *kubeSite) claims() []hivev1.ClusterClaim {
	s.t.Helper()
	var list hivev1.ClusterClaimList
	require.NoError(s.t, s.admin.List(s.t.Context(), &list, client.InNamespace(s.namespace)))
	return list.Items
}

// serve gives a claim the cluster of a namespace, as pool-operator does: rights for its subjects, the cluster's record, the status of the claim.
func (s *kubeSite) serve(claim *hivev1.ClusterClaim) {
	s.t.Helper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "cluster-"}}
	require.NoError(s.t, s.admin.Create(s.t.Context(), namespace))
	in := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: namespace.Name, Name: name} }
	s.create(&corev1.Secret{ObjectMeta: in("admin"), StringData: map[string]string{"kubeconfig": "apiVersion: v1\nkind: Config\n"}})
	s.create(&hivev1.ClusterDeployment{ObjectMeta: in(namespace.Name), Spec: hivev1.ClusterDeploymentSpec{
		ClusterName: "c", BaseDomain: "example.org", Platform: hivev1.Platform{Hosted: &hivev1.HostedPlatform{}}, Installed: true,
		ClusterMetadata: &hivev1.ClusterMetadata{ClusterID: "i", InfraID: "i", AdminKubeconfigSecretRef: hivev1.LocalObjectReference{Name: "admin"}},
		ClusterPoolRef:  &hivev1.ClusterPoolReference{Namespace: s.namespace, PoolName: claim.Spec.ClusterPoolName, ClaimName: claim.Name},
	}})
	s.create(&rbacv1.Role{ObjectMeta: in("owner"), Rules: []rbacv1.PolicyRule{allow("hive.openshift.io", "clusterdeployments", "get"), allow("", "secrets", "get")}})
	s.create(&rbacv1.RoleBinding{ObjectMeta: in("owner"), RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "owner"}, Subjects: claim.Spec.Subjects})
	before := claim.DeepCopy()
	claim.Spec.Namespace = namespace.Name
	require.NoError(s.t, s.admin.Patch(s.t.Context(), claim, client.MergeFrom(before)))
	s.status(claim, func() {
		claim.Status = hivev1.ClusterClaimStatus{Conditions: []hivev1.Condition{
			{Type: hivev1.ClusterClaimPending, Status: corev1.ConditionFalse, Reason: "ClusterClaimed", Message: "the cluster is the claim's"},
			{Type: hivev1.ClusterClaimRunning, Status: corev1.ConditionTrue, Reason: "Running", Message: "the cluster runs"},
		}}
	})
}

// TestAUserClaimsAClusterOfAPool with a token of the cluster; RBAC decides what each user sees and does.
func TestAUserClaimsAClusterOfAPool(t *testing.T) {
	chromium := browserOf(t)
	s := newKubeSite(t)
	const hive = "hive.openshift.io"
	user := s.account("dev", allow(hive, "clusterpools", "get", "list"), allow(hive, "clusterclaims", "get", "list", "create", "delete"))
	looker := s.account("looker", allow(hive, "clusterpools", "get", "list"), allow(hive, "clusterclaims", "get", "list"))
	stranger := s.account("stranger")
	pool := &hivev1.ClusterPool{ObjectMeta: metav1.ObjectMeta{Name: "small"}, Spec: hivev1.ClusterPoolSpec{
		BaseDomain: "example.org", ImageSetRef: hivev1.ClusterImageSetReference{Name: "v1"}, Platform: hivev1.Platform{Hosted: &hivev1.HostedPlatform{}}, Size: 4, MaxSize: new(int32(9)),
	}}
	s.create(pool)
	s.status(pool, func() {
		pool.Status.Size, pool.Status.Ready, pool.Status.Standby, pool.Status.Broken, pool.Status.Claimed = 4, 1, 2, 1, 3
	})
	pools := "/pools?namespace=" + s.namespace

	// Without rights there is a sentence, in all namespaces and in this one, and no button.
	b := s.open(chromium, t, stranger)
	for _, path := range []string{"/pools", pools, "/pools?namespace=../secrets"} {
		b.visit(path)
		b.sees("h1", "Pools")
		b.sees(".notice", map[bool]string{true: "This is no name of a namespace", false: "The Kubernetes API does not let you do this"}[path == "/pools?namespace=../secrets"])
		assert.False(t, ask[bool](b, `document.querySelector("main form[method=post]") !== null`), path)
	}
	b.looksFine("pools-forbidden")
	b = s.open(chromium, t, looker)
	b.visit(pools)
	b.sees("main", "small")
	assert.False(t, ask[bool](b, `document.querySelector("main form[method=post]") !== null`))

	// A form without the token of the session, or that was made up, claims nothing.
	b = s.open(chromium, t, user)
	b.visit(pools)
	b.sees("main", "small")
	assert.Equal(t, "1 2 0 3 1 0 4 / 4 (at most 9)", ask[string](b, `Array.from(document.querySelectorAll("#live tbody td")).slice(1, 8).map(e => e.innerText).join(" ")`))
	b.looksFine("pools")
	post := fmt.Sprintf("/console/pools/%s/small/claim", s.namespace)
	for body, want := range map[string]int{`claim=small-x`: 403, `csrf=guessed&claim=small-x`: 403} {
		assert.Equal(t, want, ask[int](b, fmt.Sprintf(`fetch(%q, {method: "POST", headers: {"Content-Type": "application/x-www-form-urlencoded"}, body: %q}).then(r => r.status)`, post, body)))
	}
	assert.Equal(t, 400, ask[int](b, fmt.Sprintf(`fetch(%q, {method: "POST", headers: {"Content-Type": "application/x-www-form-urlencoded"}, body: "claim=other&csrf=" + document.querySelector("main [name=csrf]").value}).then(r => r.status)`, post)))
	require.Empty(t, s.claims())

	// A claim waits, with its place and the reason; what the operator quotes is no markup.
	b.press("Claim one")
	b.sees("h2", "Claim")
	b.sees(".badge", "Waiting")
	claims := s.claims()
	require.Len(t, claims, 1)
	claim := &claims[0]
	assert.Equal(t, []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: s.namespace, Name: "dev"}}, claim.Spec.Subjects)
	s.status(claim, func() {
		claim.Status = hivev1.ClusterClaimStatus{QueuePosition: 3, WaitingFor: hivev1.WaitPoolAtCapacity, Conditions: []hivev1.Condition{
			{Type: hivev1.ClusterClaimPending, Status: corev1.ConditionTrue, Reason: "NoClusters", Message: `The pool is full <script>window.ran=1</script><img src=x onerror=window.ran=1>`},
		}}
	})
	b.sees(".lead", "The pool is full <script>")
	b.sees("dl", "3")
	b.sees("dl", "A cluster to be given back")
	assert.False(t, ask[bool](b, `window.ran !== undefined || document.querySelector("main script, main img") !== null`))
	b.looksFine("claim-waiting")
	ask[any](b, `fetch(location.pathname + "/kubeconfig").then(r => window.early = r.status)`)
	assert.Equal(t, 409, ask[int](b, `window.early`))

	// It gets a cluster while the page is open, and the kubeconfig is downloaded.
	s.serve(claim)
	b.sees(".badge", "Running")
	b.looksFine("claim-running")
	dir := b.download()
	b.press("Download the kubeconfig")
	require.Eventually(t, func() bool {
		content, err := os.ReadFile(filepath.Join(dir, claim.Name+".kubeconfig"))
		return err == nil && string(content) == "apiVersion: v1\nkind: Config\n"
	}, patience, tick)
	kept := ask[string](b, `document.documentElement.outerHTML + document.cookie + location.href + JSON.stringify(localStorage) + JSON.stringify(sessionStorage)`)
	assert.NotContains(t, kept, user[len(user)-40:])

	// Another user who sees the claim does not get the credentials.
	other := s.open(chromium, t, looker)
	other.visit("/claims/" + s.namespace + "/" + claim.Name)
	other.sees(".badge", "Running")
	other.visit("/claims/" + s.namespace + "/" + claim.Name + "/kubeconfig")
	other.sees(".notice.bad", "The Kubernetes API does not let you do this")

	// It is given back by those who may, once they say so again; a claim of that name that was made later is not.
	other.visit("/claims/" + s.namespace + "/" + claim.Name)
	other.sees(".badge", "Running")
	assert.False(t, ask[bool](other, `document.querySelector("#give-back") !== null`))
	const send = `fetch(%q, {method: "POST", headers: {"Content-Type": "application/x-www-form-urlencoded"}, body: "uid=%s&csrf=" + document.querySelector("[name=csrf]").value}).then(r => r.status)`
	give := "/console/claims/" + s.namespace + "/" + claim.Name + "/give-back"
	assert.Equal(t, 403, ask[int](other, fmt.Sprintf(send, give, claim.UID)))
	b.visit("/claims/" + s.namespace + "/" + claim.Name)
	b.sees("summary", "Give the cluster back")
	assert.Equal(t, 409, ask[int](b, fmt.Sprintf(send, give, "of-another-claim")))
	assert.Equal(t, 400, ask[int](b, fmt.Sprintf(send, give, "")))
	require.Len(t, s.claims(), 1)
	ask[any](b, `document.querySelector("#give-back summary").click(); null`)
	b.looksFine("claim-give-back")
	b.press("Give back " + claim.Name + " and delete its cluster")
	b.sees("h1", "Pools")
	require.Empty(t, s.claims())

	// A token for the service alone gets a sentence, and is good for the rest.
	narrow := s.tokenOf("dev", "agent-service")
	half := s.open(chromium, t, narrow)
	half.visit(pools)
	half.sees(".notice", "The Kubernetes API does not accept your token.")
	half.visit("/machines")
	half.sees("h1", "Machines")
	for _, entry := range s.logs.All() {
		assert.NotContains(t, fmt.Sprint(entry.Message, entry.ContextMap()), user[len(user)-40:])
	}
}

// TestAReadOnlyAccountClaimsNothing: the service says that the account is read-only, though the cluster would let it.
func TestAReadOnlyAccountClaimsNothing(t *testing.T) {
	chromium := browserOf(t)
	const viewers = "console-viewers"
	s := newKubeSite(t, "--oidc-viewer-group=system:serviceaccounts:"+viewers)
	require.NoError(t, client.IgnoreAlreadyExists(s.admin.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: viewers}})))
	const hive = "hive.openshift.io"
	rules := []rbacv1.PolicyRule{allow(hive, "clusterpools", "get", "list"), allow(hive, "clusterclaims", "get", "list", "create", "delete")}
	s.create(&hivev1.ClusterPool{ObjectMeta: metav1.ObjectMeta{Name: "small"}, Spec: hivev1.ClusterPoolSpec{
		BaseDomain: "example.org", ImageSetRef: hivev1.ClusterImageSetReference{Name: "v1"}, Platform: hivev1.Platform{Hosted: &hivev1.HostedPlatform{}}, Size: 4,
	}})
	s.create(&hivev1.ClusterClaim{ObjectMeta: metav1.ObjectMeta{Name: "mine"}, Spec: hivev1.ClusterClaimSpec{ClusterPoolName: "small"}})
	for name, token := range map[string]string{"dev": s.account("dev", rules...), "viewer": s.accountIn(viewers, "viewer-"+s.namespace, rules...)} {
		b := s.open(chromium, t, token)
		b.visit("/pools?namespace=" + s.namespace)
		b.sees("main", "small")
		assert.Equal(t, name == "dev", ask[bool](b, `document.querySelector("main form[method=post]") !== null`), name)
		b.visit("/claims/" + s.namespace + "/mine")
		b.sees("h1", "mine")
		assert.Equal(t, name == "dev", ask[bool](b, `document.querySelector("#give-back") !== null`), name)
	}
}
