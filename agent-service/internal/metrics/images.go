// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/muster-io/muster/agent-service/internal/image"
)

// Images reads a handler of discovery images when it is scraped.
type Images struct{ counters []counter }

// NewImages makes a collector of a handler.
func NewImages(h *image.Handler) *Images {
	return &Images{counters: []counter{
		{prometheus.NewDesc("agent_service_image_requests_total", "Requests for discovery images and parts of them.", nil, nil), &h.Requests},
		{prometheus.NewDesc("agent_service_image_renders_total", "Overlays that were rendered.", nil, nil), &h.Renders},
		{prometheus.NewDesc("agent_service_image_failures_total", "Requests for images that failed through no fault of the client.", nil, nil), &h.Failures},
	}}
}

// Describe implements prometheus.Collector.
func (i *Images) Describe(descs chan<- *prometheus.Desc) {
	for _, one := range i.counters {
		descs <- one.desc
	}
}

// Collect implements prometheus.Collector.
func (i *Images) Collect(out chan<- prometheus.Metric) {
	for _, one := range i.counters {
		out <- prometheus.MustNewConstMetric(one.desc, prometheus.CounterValue, float64(one.from.Load()))
	}
}
