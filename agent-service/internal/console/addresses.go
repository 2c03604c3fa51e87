// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package console

import (
	"net/http"
	"strings"

	kubevalidation "k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-io/muster/agent-service/internal/console/addressrange"
	"github.com/muster-io/muster/agent-service/internal/console/status"
	ipamv1 "github.com/muster-io/muster/apis/ipam/v1alpha1"
)

// addressPool is an IPPool as screens show it.
type addressPool struct {
	ipamv1.IPPool
	Badge status.Badge
	// Says are the sentences of conditions that a person has to know.
	Says []string
}

// URL is the pool's page.
func (p *addressPool) URL() string { return Base + "/addresses/" + p.Namespace + "/" + p.Name }

func newAddressPool(pool ipamv1.IPPool) addressPool {
	row := addressPool{IPPool: pool, Badge: status.OfAddresses(&pool)}
	for _, c := range pool.Status.Conditions {
		if wrong := c.Type == ipamv1.ReadyCondition && c.Status == "False"; wrong || c.Type != ipamv1.ReadyCondition && c.Status == "True" {
			row.Says = append(row.Says, c.Message)
		}
	}
	return row
}

// addressesPage are the IPPools of a namespace, or of all.
type addressesPage struct {
	Namespace string
	Pools     []addressPool
	Problem   string
	More      bool
}

func listAddresses(v *visit) error {
	body := &addressesPage{Namespace: strings.TrimSpace(v.r.URL.Query().Get("namespace"))}
	if err := v.readAddresses(body); err != nil {
		refused, ok := asRefusal(err)
		if !ok {
			return err
		}
		body.Problem = refused.Reason
	}
	return v.show("addresses", t("addresses.title"), body)
}

func (v *visit) readAddresses(body *addressesPage) error {
	if body.Namespace != "" && len(kubevalidation.IsDNS1123Label(body.Namespace)) > 0 {
		return &refusal{http.StatusBadRequest, t("pools.namespace_wrong")}
	}
	c, err := v.cluster()
	if err != nil {
		return err
	}
	var pools ipamv1.IPPoolList
	if err := v.fromCluster(c.List(v.r.Context(), &pools, client.InNamespace(body.Namespace), client.Limit(mostObjects))); err != nil {
		return err
	}
	for i := range pools.Items {
		body.Pools = append(body.Pools, newAddressPool(pools.Items[i]))
	}
	body.More = pools.Continue != ""
	return nil
}

// addressPage is one pool, with a picture of each of its ranges.
type addressPage struct {
	addressPool
	Ranges []addressRange
}

func showAddresses(v *visit) error {
	key, err := v.object()
	if err != nil {
		return err
	}
	c, err := v.cluster()
	if err != nil {
		return err
	}
	var pool ipamv1.IPPool
	if err := v.fromCluster(c.Get(v.r.Context(), key, &pool)); err != nil {
		return err
	}
	page := &addressPage{addressPool: newAddressPool(pool)}
	for _, r := range addressrange.Of(&pool) {
		page.Ranges = append(page.Ranges, addressRange{r})
	}
	return v.show("address", pool.Name, page)
}

// addressRange is the picture of an entry of the pool.
type addressRange struct{ addressrange.Range }

// Title says the range in words.
func (r addressRange) Title() string {
	return n("addresses.range", r.Used, r.First.String(), r.Last.String())
}
