// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package console

import (
	"context"
	"net/http"
	"slices"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kubevalidation "k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-io/muster/agent-service/internal/console/kubeclient"
	"github.com/muster-io/muster/agent-service/internal/console/status"
	hivev1 "github.com/muster-io/muster/apis/hive/v1"
)

// mostObjects is how many objects of a kind a page reads.
const mostObjects = 500

// poolRow is a ClusterPool as the list shows it.
type poolRow struct {
	hivev1.ClusterPool
	// Claim is the name of a claim that the person may make, empty where the API does not allow one.
	Claim string
}

// Sizes are how many unclaimed clusters there are, how many there shall be, and the most that the pool may have.
func (p poolRow) Sizes() string {
	if p.Spec.MaxSize == nil {
		return t("pools.sizes", p.Status.Size, p.Spec.Size)
	}
	return t("pools.sizes_max", p.Status.Size, p.Spec.Size, *p.Spec.MaxSize)
}

// poolsPage is what the person sees of pools and claims, in one namespace or in all.
type poolsPage struct {
	Namespace string
	Pools     []poolRow
	Claims    []claimRow
	// Problems are sentences in place of what the person may not see.
	Problems []string
	More     bool
}

// listPools shows what the Kubernetes API shows the person. A refusal is said in a sentence, with a field for the namespace: many may list in theirs alone.
func listPools(v *visit) error {
	body := &poolsPage{Namespace: strings.TrimSpace(v.r.URL.Query().Get("namespace"))}
	if err := v.readPools(body); err != nil {
		refused, ok := asRefusal(err)
		if !ok {
			return err
		}
		body.Problems = append(body.Problems, refused.Reason)
	}
	return v.show("pools", t("pools.title"), body)
}

func (v *visit) readPools(body *poolsPage) error {
	if body.Namespace != "" && len(kubevalidation.IsDNS1123Label(body.Namespace)) > 0 {
		return &refusal{http.StatusBadRequest, t("pools.namespace_wrong")}
	}
	c, err := v.cluster()
	if err != nil {
		return err
	}
	var pools hivev1.ClusterPoolList
	within := []client.ListOption{client.InNamespace(body.Namespace), client.Limit(mostObjects)}
	if err := body.note(v.fromCluster(c.List(v.r.Context(), &pools, within...))); err != nil {
		return err
	}
	namespaces := make([]string, len(pools.Items))
	for i := range pools.Items {
		namespaces[i] = pools.Items[i].Namespace
	}
	rights := kubeclient.Rights(v.r.Context(), c, authorizationv1.ResourceAttributes{Verb: "create", Group: hivev1.GroupVersion.Group, Resource: "clusterclaims"}, namespaces)
	for i := range pools.Items {
		row := poolRow{ClusterPool: pools.Items[i]}
		if rights[row.Namespace] {
			row.Claim = hivev1.NewClaimName(row.Name) // now, so that a form that is sent twice makes one claim
		}
		body.Pools = append(body.Pools, row)
	}
	var claims hivev1.ClusterClaimList
	if err := body.note(v.fromCluster(c.List(v.r.Context(), &claims, within...))); err != nil {
		return err
	}
	for i := range claims.Items {
		body.Claims = append(body.Claims, newClaim(claims.Items[i]))
	}
	body.More = pools.Continue != "" || claims.Continue != ""
	return nil
}

// note takes down what the person may not list: the other list is shown nevertheless. Any other error ends the page.
func (p *poolsPage) note(err error) error {
	refused, ok := asRefusal(err)
	if !ok || refused.status != http.StatusForbidden {
		return err
	}
	if !slices.Contains(p.Problems, refused.Reason) { // a token that is not accepted is refused for both
		p.Problems = append(p.Problems, refused.Reason)
	}
	return nil
}

// claimRow is a ClusterClaim, and how it stands.
type claimRow struct {
	hivev1.ClusterClaim
	Badge status.Badge
	// Why is the operator's sentence.
	Why     string
	Running bool
}

// URL is the claim's page.
func (c *claimRow) URL() string { return Base + "/claims/" + c.Namespace + "/" + c.Name }

func newClaim(claim hivev1.ClusterClaim) claimRow {
	row := claimRow{ClusterClaim: claim}
	row.Badge, row.Why, row.Running = status.OfClaim(&claim)
	return row
}

// object is the name of an object in the path.
func (v *visit) object() (client.ObjectKey, error) {
	key := client.ObjectKey{Namespace: v.r.PathValue("namespace"), Name: v.r.PathValue("name")}
	if len(kubevalidation.IsDNS1123Label(key.Namespace))+len(kubevalidation.IsDNS1123Subdomain(key.Name)) > 0 {
		return key, &refusal{http.StatusNotFound, t("error.nowhere")}
	}
	return key, nil
}

// createClaim asks a pool for a cluster for the person, as the Kubernetes API names that user.
func createClaim(v *visit) error {
	pool, err := v.object()
	if err != nil {
		return err
	}
	name := v.r.PostFormValue("claim")
	if !strings.HasPrefix(name, hivev1.ClaimNamePrefix(pool.Name)) || len(kubevalidation.IsDNS1123Subdomain(name)) > 0 {
		return &refusal{http.StatusBadRequest, t("error.form")}
	}
	c, err := v.cluster()
	if err != nil {
		return err
	}
	who := &authenticationv1.SelfSubjectReview{}
	if err := v.fromCluster(c.Create(v.r.Context(), who)); err != nil {
		return err
	}
	claim := &hivev1.ClusterClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: pool.Namespace, Name: name},
		Spec:       hivev1.ClusterClaimSpec{ClusterPoolName: pool.Name, Subjects: []rbacv1.Subject{hivev1.ClaimSubject(who.Status.UserInfo.Username)}},
	}
	if err := c.Create(v.r.Context(), claim, kubeclient.FieldOwner); !apierrors.IsAlreadyExists(err) { // it exists where the form was sent twice
		if err := v.fromCluster(err); err != nil {
			return err
		}
	}
	return v.redirect("/claims/" + pool.Namespace + "/" + name)
}

// claim reads the claim that the path names.
func (v *visit) claim() (client.Client, *hivev1.ClusterClaim, error) {
	key, err := v.object()
	if err != nil {
		return nil, nil, err
	}
	c, err := v.cluster()
	if err != nil {
		return nil, nil, err
	}
	found := &hivev1.ClusterClaim{}
	return c, found, v.fromCluster(c.Get(v.r.Context(), key, found))
}

// claimPage is one claim.
type claimPage struct {
	claimRow
	// MayGiveBack is true where the person may delete the claim.
	MayGiveBack bool
}

func showClaim(v *visit) error {
	c, claim, err := v.claim()
	if err != nil {
		return err
	}
	body := claimPage{claimRow: newClaim(*claim)}
	if claim.DeletionTimestamp.IsZero() {
		ctx, cancel := context.WithTimeout(v.r.Context(), kubeclient.ButtonTime)
		defer cancel()
		body.MayGiveBack, _ = kubeclient.Allowed(ctx, c, authorizationv1.ResourceAttributes{ // an answer that is not there is no permission
			Verb: "delete", Group: hivev1.GroupVersion.Group, Resource: "clusterclaims", Namespace: claim.Namespace, Name: claim.Name,
		})
	}
	return v.show("claim", claim.Name, &body)
}

// giveBack deletes the claim that the person looked at: one that has its name but was made later stays. Where it is gone already, all is as it was asked for.
func giveBack(v *visit) error {
	key, err := v.object()
	if err != nil {
		return err
	}
	uid := types.UID(v.r.PostFormValue("uid"))
	if uid == "" {
		return &refusal{http.StatusBadRequest, t("error.form")}
	}
	c, err := v.cluster()
	if err != nil {
		return err
	}
	claim := &hivev1.ClusterClaim{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
	if err := v.fromCluster(client.IgnoreNotFound(c.Delete(v.r.Context(), claim, client.Preconditions{UID: &uid}))); err != nil {
		return err
	}
	return v.redirect("/pools?namespace=" + key.Namespace)
}

// downloadKubeconfig hands on the kubeconfig of a claim's cluster. The person reads it with the rights of a subject of the claim: the cluster by its name, and the
// Secret that it names.
func downloadKubeconfig(v *visit) error {
	c, claim, err := v.claim()
	if err != nil {
		return err
	}
	if row := newClaim(*claim); !row.Running || claim.Spec.Namespace == "" {
		return &refusal{http.StatusConflict, t("claim.not_running")}
	}
	var cluster hivev1.ClusterDeployment
	if err := v.fromCluster(c.Get(v.r.Context(), client.ObjectKey{Namespace: claim.Spec.Namespace, Name: claim.Spec.Namespace}, &cluster)); err != nil {
		return err
	}
	if ref := cluster.Spec.ClusterPoolRef; ref == nil || ref.ClaimName != claim.Name || ref.Namespace != claim.Namespace || cluster.Spec.ClusterMetadata == nil {
		return &refusal{http.StatusConflict, t("claim.not_running")}
	}
	return v.passKubeconfig(c, client.ObjectKey{Namespace: cluster.Namespace, Name: cluster.Spec.ClusterMetadata.AdminKubeconfigSecretRef.Name}, claim.Name+".kubeconfig")
}
