// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	metal3v1 "github.com/muster-io/muster/apis/metal3/v1alpha1"
)

// Hosts counts the hosts that this operator manages, from the cache, when it is asked.
type Hosts struct {
	reader client.Reader
	hosts  *prometheus.Desc
}

// NewHosts makes a collector that reads from the cache.
func NewHosts(reader client.Reader) *Hosts {
	return &Hosts{reader: reader, hosts: prometheus.NewDesc("discovery_operator_managed_hosts",
		"Hosts that this operator manages, by state and by the reason of their condition Ready.", []string{"state", "reason"}, nil)}
}

// Describe implements prometheus.Collector.
func (c *Hosts) Describe(ch chan<- *prometheus.Desc) { ch <- c.hosts }

// Collect implements prometheus.Collector.
func (c *Hosts) Collect(ch chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), scrapeTimeout) //nolint:forbidigo // Collect is called without a context
	defer cancel()
	var list metal3v1.BareMetalHostList
	if err := c.reader.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		ch <- prometheus.NewInvalidMetric(c.hosts, err)
		return
	}
	type group struct{ state, reason string }
	counts := map[group]int{}
	for i := range list.Items {
		s := &list.Items[i].Status
		if h := meta.FindStatusCondition(s.Conditions, metal3v1.ConditionHandedOver); h == nil || h.Reason != metal3v1.ReasonManagedHere {
			continue
		}
		if ready := meta.FindStatusCondition(s.Conditions, metal3v1.ConditionReady); ready != nil {
			counts[group{string(s.Provisioning.State), ready.Reason}]++
		}
	}
	for g, n := range counts {
		ch <- prometheus.MustNewConstMetric(c.hosts, prometheus.GaugeValue, float64(n), g.state, g.reason)
	}
}
