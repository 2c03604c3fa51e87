// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package validate says what a host lacks: to be given to any cluster, and to be installed in its own.
package validate

// Status is the outcome of a validation.
type Status string

// Outcomes.
const (
	Success Status = "success"
	Failure Status = "failure"
	Pending Status = "pending"
	// Disabled is of validations that the cluster ignores, or that have nothing to look at in this service.
	Disabled Status = "disabled"
)

// Result is the outcome of one validation.
type Result struct {
	ID string `json:"id"`
	// Category is hardware or network.
	Category string `json:"category"`
	Status   Status `json:"status"`
	// Message is one sentence.
	Message string `json:"message"`
}

// NTPSource is a time server as the host sees it.
type NTPSource struct {
	Name string `json:"source_name"`
	// State is synced, combined, not_combined, error, variable or unreachable.
	State string `json:"source_state"`
}
