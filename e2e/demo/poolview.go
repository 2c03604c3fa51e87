// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"
	"sigs.k8s.io/controller-runtime/pkg/client"

	hivev1 "github.com/muster-io/muster/apis/hive/v1"
)

// poolView is how the sample pool stands.
type poolView struct {
	pool     hivev1.ClusterPool
	clusters []hivev1.ClusterDeployment
	claims   []hivev1.ClusterClaim
}

// lookAtPool reads how the sample pool stands and draws it.
func (s *stage) lookAtPool(ctx context.Context) (*poolView, error) {
	v := &poolView{}
	if err := s.client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: poolName}, &v.pool); err != nil {
		return nil, fmt.Errorf("reading the pool: %w", err)
	}
	clusters, claims := &hivev1.ClusterDeploymentList{}, &hivev1.ClusterClaimList{}
	if err := s.client.List(ctx, clusters, client.MatchingLabels{hivev1.LabelClusterPoolNamespace: namespace, hivev1.LabelClusterPoolName: poolName}); err != nil {
		return nil, fmt.Errorf("listing the clusters: %w", err)
	}
	if err := s.client.List(ctx, claims, client.InNamespace(namespace)); err != nil {
		return nil, fmt.Errorf("listing the claims: %w", err)
	}
	v.clusters, v.claims = clusters.Items, claims.Items
	slices.SortFunc(v.clusters, func(a, b hivev1.ClusterDeployment) int {
		if c := a.CreationTimestamp.Compare(b.CreationTimestamp.Time); c != 0 {
			return c
		}
		return strings.Compare(a.Name, b.Name)
	})
	s.screen.show(v.table(s.screen.paint))
	for _, line := range v.notes() {
		s.screen.note(line)
	}
	return v, nil
}

// notes are the lines that say something new where no table can be drawn.
func (v *poolView) notes() []string {
	var out []string
	for i := range v.clusters {
		out = append(out, fmt.Sprintf("cluster %s: %s", v.clusters[i].Name, state(&v.clusters[i])))
	}
	for i := range v.claims {
		out = append(out, fmt.Sprintf("claim %s: %s", v.claims[i].Name, waiting(&v.claims[i])))
	}
	return out
}

// table draws pool, clusters and claims. paint colours a text.
func (v *poolView) table(paint func(color, text string) string) []string {
	status := v.pool.Status
	summary := "-"
	if ready := hivev1.FindCondition(status.Conditions, hivev1.ClusterPoolReady); ready != nil {
		summary = ready.Reason
	}
	out := grid(paint, []string{"POOL", "SIZE", "READY", "STANDBY", "INSTALLING", "CLAIMED", "STATE"}, [][]string{{
		v.pool.Name, fmt.Sprint(v.pool.Spec.Size), fmt.Sprint(status.Ready), fmt.Sprint(status.Standby), fmt.Sprint(status.Installing), fmt.Sprint(status.Claimed), summary,
	}})
	var clusters [][]string
	for i := range v.clusters {
		c := &v.clusters[i]
		claim := "-"
		if c.Spec.ClusterPoolRef != nil && c.Spec.ClusterPoolRef.ClaimName != "" {
			claim = c.Spec.ClusterPoolRef.ClaimName
		}
		clusters = append(clusters, []string{c.Name, c.Spec.ClusterName, state(c), claim, duration.HumanDuration(time.Since(c.CreationTimestamp.Time))})
	}
	out = append(append(out, ""), grid(paint, []string{"CLUSTER", "NAME", "STATE", "CLAIM", "AGE"}, clusters)...)
	if len(v.claims) == 0 {
		return out
	}
	var claims [][]string
	for i := range v.claims {
		c := &v.claims[i]
		claims = append(claims, []string{c.Name, orDash(c.Spec.Namespace), waiting(c)})
	}
	return append(append(out, ""), grid(paint, []string{"CLAIM", "CLUSTER", "STATE"}, claims)...)
}

// state says in a word or two how a cluster is.
func state(c *hivev1.ClusterDeployment) string {
	switch {
	case !c.DeletionTimestamp.IsZero():
		return "deleting"
	case !c.Spec.Installed:
		if p := hivev1.FindCondition(c.Status.Conditions, hivev1.ClusterDeploymentProvisioned); p != nil && p.Reason != "" && p.Reason != hivev1.ReasonProvisioning {
			return "installing: " + p.Reason
		}
		return "installing"
	case c.Status.PowerState == "":
		return "installed"
	}
	return string(c.Status.PowerState)
}

// waiting says how a claim is: usable, or what it waits for.
func waiting(c *hivev1.ClusterClaim) string {
	if hivev1.IsConditionTrue(c.Status.Conditions, hivev1.ClusterClaimRunning) {
		return "usable"
	}
	for _, kind := range []string{hivev1.ClusterClaimRunning, hivev1.ClusterClaimPending} {
		if condition := hivev1.FindCondition(c.Status.Conditions, kind); condition != nil && condition.Reason != "" && condition.Reason != "Initialized" {
			return condition.Reason
		}
	}
	return "pending"
}

// grid lays out a table.
func grid(paint func(color, text string) string, head []string, rows [][]string) []string {
	widths := make([]int, len(head))
	for _, row := range append([][]string{head}, rows...) {
		for i, cell := range row {
			widths[i] = max(widths[i], len(cell))
		}
	}
	line := func(row []string, color func(i int) string) string {
		var out strings.Builder
		for i, cell := range row {
			text := cell
			if c := color(i); c != "" {
				text = paint(c, cell)
			}
			out.WriteString(text)
			if i < len(row)-1 {
				out.WriteString(strings.Repeat(" ", widths[i]-len(cell)+2))
			}
		}
		return out.String()
	}
	out := []string{line(head, func(int) string { return bold })}
	for _, row := range rows {
		out = append(out, line(row, func(i int) string {
			switch row[i] {
			case string(hivev1.PowerStateRunning), "usable", hivev1.ReasonPoolFilled:
				return green
			case string(hivev1.PowerStateHibernating), "-":
				return dim
			}
			return ""
		}))
	}
	return out
}

func orDash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}
