// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/uptrace/bun"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"

	"github.com/muster-io/muster/agent-service/internal/domain"
	"github.com/muster-io/muster/agent-service/internal/hostlabels"
)

// selects is true for a filter that chooses hosts by their labels.
func selects(f domain.HostFilter) bool { return f.Selector != nil && !f.Selector.Empty() }

// labelled are the hosts of a filter that its selector matches, of all pages and in the order of lists. Labels that the principal may not see, of a host or of its InfraEnv, do
// not count.
func (r reader) labelled(ctx context.Context, scope domain.Scope, f domain.HostFilter) ([]domain.Host, error) {
	ofInfraEnvs, err := r.agentLabels(ctx, scope)
	if err != nil {
		return nil, err
	}
	var used []string
	if !scope.Admin {
		if err := owned(r.db.NewSelect().Table("clusters").Column("id"), scope).Scan(ctx, &used); err != nil {
			return nil, classify(err)
		}
	}
	var rows []hostRow
	query := mayMatch(r.matching(r.db.NewSelect().Model(&rows), scope, f), f.Selector, ofInfraEnvs)
	if err := query.Order("created_at", "infra_env_id", "host_id").Scan(ctx); err != nil {
		return nil, classify(err)
	}
	all, err := decodeAll(rows, r.host)
	return slices.DeleteFunc(all, func(h domain.Host) bool {
		shown := &h
		if !scope.Admin {
			shown = domain.Stake{Owns: scope.Owns(h.Owner), Uses: slices.Contains(used, h.ClusterID)}.Shown(h)
		}
		return !f.Selector.Matches(hostlabels.Of(shown, ofInfraEnvs[h.InfraEnvID]))
	}), err
}

// agentLabels are those of the InfraEnvs of a scope, by id.
func (r reader) agentLabels(ctx context.Context, scope domain.Scope) (map[string]map[string]string, error) {
	var rows []infraEnvRow
	if err := owned(r.db.NewSelect().Model(&rows), scope).Where("doc"+like, including(`"AgentLabels":{"`)).Scan(ctx); err != nil {
		return nil, classify(err)
	}
	envs, err := decodeAll(rows, infraEnvRow.decode)
	found := make(map[string]map[string]string, len(envs))
	for i := range envs {
		found[envs[i].ID] = envs[i].AgentLabels
	}
	return found, err
}

// mayMatch leaves out hosts that a selector cannot match, by the text of their records: the selector decides about the others.
func mayMatch(query *bun.SelectQuery, selector labels.Selector, ofInfraEnvs map[string]map[string]string) *bun.SelectQuery {
	requirements, _ := selector.Requirements()
	for _, one := range requirements {
		texts := textsOf(one)
		if len(texts) == 0 {
			continue
		}
		var infraEnvs []string
		for id, set := range ofInfraEnvs {
			if one.Matches(labels.Set(set)) {
				infraEnvs = append(infraEnvs, id)
			}
		}
		query = query.WhereGroup(" AND ", func(query *bun.SelectQuery) *bun.SelectQuery {
			for _, text := range texts {
				query = query.WhereOr("doc"+like, including(text))
			}
			if len(infraEnvs) > 0 {
				query = query.WhereOr("infra_env_id IN (?)", bun.List(infraEnvs))
			}
			return query
		})
	}
	return query
}

// textsOf are what a record that says the label contains, one of them; none where a requirement is met without. A label is no text that JSON escapes.
func textsOf(one labels.Requirement) []string {
	if !hostlabels.Stored(one.Key()) {
		return nil
	}
	label := `"` + one.Key() + `":"`
	switch one.Operator() {
	case selection.Exists:
		return []string{label}
	case selection.In, selection.Equals, selection.DoubleEquals:
		var texts []string
		for value := range one.Values() {
			texts = append(texts, label+value+`"`)
		}
		return texts
	default:
		return nil
	}
}

// including is a pattern of LIKE for what contains a text.
func including(text string) string {
	return "%" + strings.NewReplacer(`\`, `\\`, `%`, `\%`, `_`, `\_`).Replace(text) + "%"
}

// pageOf is a page of a list that was read whole.
func pageOf[T any](all []T, page domain.Page) domain.List[T] {
	from := min(max(page.Offset, 0), len(all))
	to := min(from+min(cmp.Or(max(page.Limit, 0), defaultPage), largestPage), len(all))
	return domain.List[T]{Items: all[from:to], Total: len(all)}
}
