// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package machinefilter knows what the address of the list of machines says: which machines it shows, and which page of them.
package machinefilter

import (
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/google/uuid"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/muster-io/muster/agent-service/api"
	"github.com/muster-io/muster/agent-service/internal/console/location"
	"github.com/muster-io/muster/agent-service/internal/console/status"
)

// PageSize is how many rows a list shows at once.
const PageSize = 50

// Roles of machines, in the order of screens.
var Roles = []string{"master", "arbiter", "worker", "auto-assign"}

// Filter is what the address of the list of machines says.
type Filter struct {
	// Group is the ID of one of status.Groups, empty for all.
	Group             string
	InfraEnv, Cluster *uuid.UUID
	// Search is a part of what a machine is known by.
	Search string
	// Labels is a selector of labels, in the form of the API.
	Labels string
	// Role is one of Roles, empty for all.
	Role string
	// Page counts from 0.
	Page int
}

// Read returns the filter of an address. Values without a meaning are left out.
func Read(q url.Values) Filter {
	f := Filter{Group: q.Get("state"), Search: strings.TrimSpace(q.Get("search")), Labels: strings.TrimSpace(q.Get("labels"))}
	if role := q.Get("role"); slices.Contains(Roles, role) {
		f.Role = role
	}
	if id, err := uuid.Parse(q.Get("infra_env")); err == nil {
		f.InfraEnv = &id
	}
	if id, err := uuid.Parse(q.Get("cluster")); err == nil {
		f.Cluster = &id
	}
	f.Page = PageNumber(q)
	return f
}

// PageNumber is the page that the address of a list names. It counts from 0.
func PageNumber(q url.Values) int {
	n, err := strconv.Atoi(q.Get("page"))
	if err != nil || n < 1 {
		return 0
	}
	return n - 1
}

// Neighbours are the addresses of the pages before and after one of a list below location.Base, empty for none.
func Neighbours(path string, at, total int) (before, after string) {
	if at > 0 {
		before = location.Base + path + "?page=" + strconv.Itoa(at)
	}
	if (at+1)*PageSize < total {
		after = location.Base + path + "?page=" + strconv.Itoa(at+2)
	}
	return before, after
}

// URL is the address of the list with this filter.
func (f Filter) URL() string {
	q := f.query()
	if len(q) == 0 {
		return location.Base + "/machines"
	}
	return location.Base + "/machines?" + q.Encode()
}

func (f Filter) query() url.Values {
	q := url.Values{}
	if f.Group != "" {
		q.Set("state", f.Group)
	}
	if f.InfraEnv != nil {
		q.Set("infra_env", f.InfraEnv.String())
	}
	if f.Cluster != nil {
		q.Set("cluster", f.Cluster.String())
	}
	if f.Page > 0 {
		q.Set("page", strconv.Itoa(f.Page+1))
	}
	if f.Search != "" {
		q.Set("search", f.Search)
	}
	if f.Labels != "" {
		q.Set("labels", f.Labels)
	}
	if f.Role != "" {
		q.Set("role", f.Role)
	}
	return q
}

// Beside are the parts of the filter that a search keeps.
func (f Filter) Beside() url.Values {
	f.Search, f.Page = "", 0
	return f.query()
}

// Of is the filter for the first page of another group.
func (f Filter) Of(group string) Filter {
	f.Group, f.Page = group, 0
	return f
}

// Params are those of a page of the list.
func (f Filter) Params(limit, offset int) *api.ListAllHostsParams {
	p := &api.ListAllHostsParams{InfraEnvID: f.InfraEnv, ClusterID: f.Cluster, Limit: new(limit), Offset: new(offset), WithInventory: new(limit > 1)}
	if f.Search != "" {
		p.Search = new(f.Search)
	}
	if f.Labels != "" {
		p.LabelSelector = new(f.Labels)
	}
	if f.Role != "" {
		p.Role = new(api.ListAllHostsParamsRole(f.Role))
	}
	if at := slices.IndexFunc(status.Groups, func(g status.Group) bool { return g.ID == f.Group }); at >= 0 {
		p.Status = new(status.Groups[at].States)
	}
	return p
}

// Counts are the parameters that count the machines of each state, of all groups.
func (f Filter) Counts() *api.CountHostsParams {
	p := &api.CountHostsParams{InfraEnvID: f.InfraEnv, ClusterID: f.Cluster}
	if f.Search != "" {
		p.Search = new(f.Search)
	}
	if f.Labels != "" {
		p.LabelSelector = new(f.Labels)
	}
	if f.Role != "" {
		p.Role = new(api.CountHostsParamsRole(f.Role))
	}
	return p
}

// Requirements are the parts of the selector, none for one that the API refuses.
func (f Filter) Requirements() []string {
	parsed, err := labels.ParseToRequirements(f.Labels)
	if err != nil {
		return nil
	}
	list := make([]string, 0, len(parsed))
	for i := range parsed {
		list = append(list, parsed[i].String())
	}
	return list
}

// With is the filter for machines that have a label as well.
func (f Filter) With(key, value string) Filter {
	one := key + "=" + value
	if f.Page = 0; !slices.Contains(f.Requirements(), one) {
		f.Labels = strings.Trim(f.Labels+","+one, ",")
	}
	return f
}

// Pager leads to the pages before and after, each empty where there is none.
type Pager struct{ Before, After string }

// Pager is that of the filter's page, where the filter chooses so many machines.
func (f Filter) Pager(total int) Pager {
	var p Pager
	if f.Page > 0 {
		before := f
		before.Page--
		p.Before = before.URL()
	}
	if (f.Page+1)*PageSize < total {
		after := f
		after.Page++
		p.After = after.URL()
	}
	return p
}
