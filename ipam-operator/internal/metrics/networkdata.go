// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-io/muster/ipam-operator/internal/allocate"
)

// NetworkData are the instruments of network data: how far the claims and the data of machines are.
type NetworkData struct {
	// Claims are the Metal3DataClaims that have no Metal3Data.
	Claims *Progress
	// Data are all Metal3Data.
	Data *Progress

	rendering prometheus.Histogram
}

// NewNetworkData registers the instruments of network data.
func NewNetworkData(registry prometheus.Registerer) *NetworkData {
	n := &NetworkData{
		Claims: newProgress(), Data: newProgress(),
		rendering: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "ipam_rendering_duration_seconds", Help: "Time from the first look at a Metal3Data without Secrets to its Secrets.",
			Buckets: []float64{.005, .01, .02, .05, .1, .2, .5, 1, 2, 5, 10, 60, 600},
		}),
	}
	registry.MustRegister(n.rendering, n)
	return n
}

// Rendered notes that the Secrets of a Metal3Data are there.
func (n *NetworkData) Rendered(data types.NamespacedName, now time.Time) {
	if since, ok := n.Data.ready(data); ok {
		n.rendering.Observe(now.Sub(since).Seconds())
	}
}

var (
	rendered = prometheus.NewDesc("ipam_network_data_rendered", "Metal3Data whose Secrets are there.", nil, nil)
	unserved = prometheus.NewDesc("ipam_network_data_waiting", "Metal3DataClaims without Metal3Data and Metal3Data without Secrets, by reason.", []string{"reason"}, nil)
)

// Describe implements prometheus.Collector.
func (n *NetworkData) Describe(out chan<- *prometheus.Desc) {
	out <- rendered
	out <- unserved
}

// Collect implements prometheus.Collector.
func (n *NetworkData) Collect(out chan<- prometheus.Metric) {
	waiting := map[allocate.Why]int{}
	n.Claims.count(waiting)
	out <- prometheus.MustNewConstMetric(rendered, prometheus.GaugeValue, float64(n.Data.count(waiting)))
	for why, objects := range waiting {
		out <- prometheus.MustNewConstMetric(unserved, prometheus.GaugeValue, float64(objects), string(why))
	}
}

// Progress is how far each object of a kind is.
type Progress struct {
	mu sync.Mutex
	of map[types.NamespacedName]stage
}

// stage is how far an object is: ready, or begun and, once that is known, why it waits.
type stage struct {
	ready bool
	since time.Time
	why   allocate.Why
}

func newProgress() *Progress { return &Progress{of: map[types.NamespacedName]stage{}} }

// Begins notes the first look at an object that is not ready.
func (p *Progress) Begins(obj types.NamespacedName, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if at := p.of[obj]; at.since.IsZero() {
		p.of[obj] = stage{since: now, why: at.why}
	}
}

// Waits notes what an object waits for.
func (p *Progress) Waits(obj types.NamespacedName, why allocate.Why) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.of[obj] = stage{since: p.of[obj].since, why: why}
}

// Gone forgets an object.
func (p *Progress) Gone(obj types.NamespacedName) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.of, obj)
}

// ready notes that an object is ready, and returns when it was begun, if it was not ready before.
func (p *Progress) ready(obj types.NamespacedName) (since time.Time, begun bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	since = p.of[obj].since
	p.of[obj] = stage{ready: true}
	return since, !since.IsZero()
}

// count adds those that wait, and returns how many are ready.
func (p *Progress) count(waiting map[allocate.Why]int) (ready int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, at := range p.of {
		switch {
		case at.ready:
			ready++
		case at.why != "":
			waiting[at.why]++
		}
	}
	return ready
}
