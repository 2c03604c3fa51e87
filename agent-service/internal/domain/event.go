// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package domain

import (
	"encoding/json"
	"time"
)

// Event tells a change. It is written in the change's transaction; repeats are folded into a count.
type Event struct {
	ID int64
	// Position grows with each event that is written or repeated. Streams go on after the last one that they saw.
	Position int64
	// Name is of the event catalogue: host_registration_succeeded …
	Name       string
	InfraEnvID string
	HostID     string
	ClusterID  string
	Severity   string
	Category   string
	Message    string
	// At is when it happened first, LastAt last.
	At     time.Time
	LastAt time.Time
	Count  int64
	// ForInfraEnv and ForCluster say who sees it: the administrator of the InfraEnv, the creator of the cluster.
	ForInfraEnv bool
	ForCluster  bool
	RequestID   string
	Props       json.RawMessage
	// Reported events come from the agent of the host. All others are written by the service.
	Reported bool
}

// ReportedEvents is how many events are kept of those that one host reported.
const ReportedEvents = 100

// Severities of events.
const (
	Info     = "info"
	Warning  = "warning"
	Failure  = "error"
	Critical = "critical"
)
