// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package domain

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// Event reports a change. It is written in the change's transaction; repeats are folded into a count.
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

// EventHostDeregistered is the name of the event of a host that a user deleted.
const EventHostDeregistered = "host_deregistered"

// ReportedEvents is how many events are kept of those that one host reported.
const ReportedEvents = 100

// Severities of events.
const (
	Info     = "info"
	Warning  = "warning"
	Failure  = "error"
	Critical = "critical"
)

// largestProps is how much an agent may say beside the message of an event, in bytes.
const largestProps = 64 << 10

// ownEvents are how the names of events begin that the service writes itself.
var ownEvents = []string{"host_", "cluster_", "infra_env_", "image_"}

// CheckReported is what is wrong with an event that an agent reports, nil for nothing.
func (e *Event) CheckReported() error {
	if e.Name == "" || utf8.RuneCountInString(e.Name) > 128 || e.Message == "" || utf8.RuneCountInString(e.Message) > 2000 {
		return Refuse(Invalid, "EventInvalid", "an event needs a name of at most 128 and a message of at most 2000 characters")
	}
	if slices.ContainsFunc(ownEvents, func(prefix string) bool { return strings.HasPrefix(strings.ToLower(e.Name), prefix) }) {
		return Refuse(Invalid, "EventReserved", "event %q: names that begin with %s are reserved for the service", e.Name, strings.Join(ownEvents, ", "))
	}
	if len(e.Props) > largestProps {
		return Refuse(Invalid, "EventInvalid", "props of %d bytes: write at most %d", len(e.Props), largestProps)
	}
	if category := cmp.Or(e.Category, "user"); category != "user" && category != "metrics" {
		return Refuse(Invalid, "CategoryInvalid", "category %q: write user or metrics", Truncate(category, 32))
	}
	return nil
}

// CheckSeverity is what is wrong with the severity of an event, nil for nothing.
func (e *Event) CheckSeverity() error {
	switch e.Severity {
	case Info, Warning, Failure, Critical:
		return nil
	default:
		return Refuse(Invalid, "SeverityInvalid", "severity %q: write info, warning, error or critical", Truncate(e.Severity, 32))
	}
}
