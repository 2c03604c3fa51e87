// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package console

import (
	"cmp"
	"math"
	"math/big"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	kubevalidation "k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"

	ipamv1 "github.com/muster-io/muster/apis/ipam/v1alpha1"
)

// strip is how wide the picture of a range is, and thinnest how wide a single address of a large one.
const strip, thinnest = 600.0, 2.0

// addressPool is an IPPool as screens show it.
type addressPool struct {
	ipamv1.IPPool
	Badge badge
	// Says are the sentences of conditions that a person has to know.
	Says []string
}

// URL is the pool's page.
func (p *addressPool) URL() string { return Base + "/addresses/" + p.Namespace + "/" + p.Name }

// Known is true once the operator has counted.
func (p *addressPool) Known() bool { return p.Status.Total != nil }

func newAddressPool(pool ipamv1.IPPool) addressPool {
	row := addressPool{IPPool: pool, Badge: badge{t("addresses.free"), toneOK}}
	exhausted := meta.FindStatusCondition(pool.Status.Conditions, ipamv1.ExhaustedCondition)
	switch {
	case !pool.DeletionTimestamp.IsZero():
		row.Badge = badge{t("addresses.deleting"), toneIdle}
	case meta.IsStatusConditionFalse(pool.Status.Conditions, ipamv1.ReadyCondition):
		row.Badge = badge{t("addresses.invalid"), toneBad}
	case exhausted != nil && exhausted.Status == "True" && exhausted.Reason == ipamv1.ReasonAddressesCoolDown:
		row.Badge = badge{t("addresses.cooling"), toneWarn}
	case exhausted != nil && exhausted.Status == "True":
		row.Badge = badge{t("addresses.exhausted"), toneBad}
	case !row.Known():
		row.Badge = badge{t("addresses.unknown"), toneIdle}
	}
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
	return v.show("address", pool.Name, &addressPage{newAddressPool(pool), rangesOf(&pool)})
}

// addressRange is an entry of a pool as a strip from its first address to its last.
type addressRange struct {
	First, Last netip.Addr
	// Used is how many claims have addresses in the range.
	Used  int
	Marks []mark
}

// Title says the range in words.
func (r addressRange) Title() string {
	return n("addresses.range", r.Used, r.First.String(), r.Last.String())
}

// mark is a part of the strip: used or excluded.
type mark struct {
	Kind     string
	From, To float64
}

// Width of the mark, in units of the picture.
func (m mark) Width() float64 { return m.To - m.From }

// rangesOf draws the entries that can be read; the operator says what is wrong with others.
func rangesOf(pool *ipamv1.IPPool) []addressRange {
	var list []addressRange
	for i := range pool.Spec.Pools {
		r, ok := bounds(&pool.Spec.Pools[i])
		if !ok {
			continue
		}
		for _, text := range pool.Spec.ExcludedAddresses {
			r.mark("excluded", string(text))
		}
		excluded := r.Marks
		r.Marks = nil
		for _, text := range pool.Status.Allocations {
			if r.mark("used", string(text)) {
				r.Used++
			}
		}
		r.Marks = append(merged(excluded), merged(r.Marks)...)
		list = append(list, r)
	}
	return list
}

// bounds are the first and the last address of an entry.
func bounds(entry *ipamv1.Pool) (r addressRange, ok bool) {
	var first, last netip.Addr
	if entry.Subnet != nil {
		subnet, err := netip.ParsePrefix(string(*entry.Subnet))
		if err != nil {
			return r, false
		}
		first, last = subnet.Addr().Next(), lastOf(subnet)
	}
	for text, into := range map[*ipamv1.IPAddressStr]*netip.Addr{entry.Start: &first, entry.End: &last} {
		if text != nil {
			*into, _ = netip.ParseAddr(string(*text)) // what is no address is not valid, and not drawn
		}
	}
	if !last.IsValid() {
		last = first
	}
	return addressRange{First: first, Last: last}, first.IsValid() && first.BitLen() == last.BitLen() && !last.Less(first)
}

// lastOf is the last address of a network.
func lastOf(network netip.Prefix) netip.Addr {
	raw := network.Addr().AsSlice()
	for bit := network.Bits(); bit < len(raw)*8; bit++ {
		raw[bit/8] |= 0x80 >> (bit % 8)
	}
	last, _ := netip.AddrFromSlice(raw)
	return last
}

// mark draws an address, a network or a range "first-last", as far as it is in the range; false where it is not.
func (r *addressRange) mark(kind, text string) bool {
	first, last, ok := span(text)
	if !ok || first.BitLen() != r.First.BitLen() || last.Less(r.First) || r.Last.Less(first) {
		return false
	}
	if first.Less(r.First) {
		first = r.First
	}
	if r.Last.Less(last) {
		last = r.Last
	}
	all := distance(r.First, r.Last) + 1
	from, to := distance(r.First, first)/all*strip, (distance(r.First, last)+1)/all*strip
	if to-from < thinnest {
		from = min(from, strip-thinnest)
		to = from + thinnest
	}
	r.Marks = append(r.Marks, mark{kind, from, to})
	return true
}

func span(text string) (first, last netip.Addr, ok bool) {
	if network, err := netip.ParsePrefix(text); err == nil {
		return network.Masked().Addr(), lastOf(network), true
	}
	from, to, isRange := strings.Cut(text, "-")
	first, err := netip.ParseAddr(from)
	if err != nil || !isRange {
		return first, first, err == nil
	}
	last, err = netip.ParseAddr(to)
	return first, last, err == nil
}

// distance is how many addresses lie between two, as exactly as a picture needs.
func distance(from, to netip.Addr) float64 {
	number := func(a netip.Addr) *big.Int { return new(big.Int).SetBytes(a.AsSlice()) }
	d, _ := new(big.Float).SetInt(new(big.Int).Sub(number(to), number(from))).Float64()
	return d
}

// merged joins marks that touch, so that a full pool is one mark.
func merged(marks []mark) []mark {
	slices.SortFunc(marks, func(a, b mark) int { return cmp.Compare(a.From, b.From) })
	var list []mark
	for _, m := range marks {
		if end := len(list) - 1; end >= 0 && m.From <= list[end].To+0.01 {
			list[end].To = max(list[end].To, m.To)
			continue
		}
		list = append(list, m)
	}
	for i := range list {
		list[i].From, list[i].To = round(list[i].From), round(list[i].To)
	}
	return list
}

func round(x float64) float64 { return math.Round(x*100) / 100 }
