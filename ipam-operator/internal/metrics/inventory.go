// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package metrics

import "github.com/prometheus/client_golang/prometheus"

// Inventory counts requests to an inventory of addresses outside of the cluster.
type Inventory struct{ requests *prometheus.CounterVec }

// NewInventory registers the instrument.
func NewInventory(registry prometheus.Registerer) *Inventory {
	i := &Inventory{requests: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "ipam_inventory_requests_total",
		Help: "Requests to the inventory of addresses, by operation (taken, give, free) and result (success, error).",
	}, []string{"operation", "result"})}
	registry.MustRegister(i.requests)
	return i
}

// Asked counts a request.
func (i *Inventory) Asked(operation string, err error) {
	result := "success"
	if err != nil {
		result = "error"
	}
	i.requests.WithLabelValues(operation, result).Inc()
}
