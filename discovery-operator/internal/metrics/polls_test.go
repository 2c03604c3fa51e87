// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package metrics_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/muster-io/muster/discovery-operator/internal/fleet"
	"github.com/muster-io/muster/discovery-operator/internal/metrics"
)

func TestReadingsOfEachIronicAreSeries(t *testing.T) {
	at := func(s int64) time.Time { return time.Unix(s, 0) }
	pace := fleet.Pace{News: 10 * time.Second, Full: time.Hour}
	collector := metrics.NewPolls(func() []fleet.Reading {
		return []fleet.Reading{
			{Endpoint: "http://a/v1/", News: at(100), Full: at(50), Pace: pace},
			{Endpoint: "http://b/v1/", News: at(7), Full: at(7), Pace: pace},
			{Endpoint: "http://a/v1/", News: at(90), Full: at(60), Pace: pace},
		}
	})
	require.NoError(t, testutil.CollectAndCompare(collector, strings.NewReader(`
# HELP discovery_operator_poll_interval_seconds The time between two readings of an Ironic while it answers, by kind (news, full).
# TYPE discovery_operator_poll_interval_seconds gauge
discovery_operator_poll_interval_seconds{ironic="http://a/v1/",kind="full"} 3600
discovery_operator_poll_interval_seconds{ironic="http://a/v1/",kind="news"} 10
discovery_operator_poll_interval_seconds{ironic="http://b/v1/",kind="full"} 3600
discovery_operator_poll_interval_seconds{ironic="http://b/v1/",kind="news"} 10
# HELP discovery_operator_poll_last_success_timestamp_seconds When an Ironic was last read without error, by kind (news, full); until the first time, when this process began to try.
# TYPE discovery_operator_poll_last_success_timestamp_seconds gauge
discovery_operator_poll_last_success_timestamp_seconds{ironic="http://a/v1/",kind="full"} 50
discovery_operator_poll_last_success_timestamp_seconds{ironic="http://a/v1/",kind="news"} 90
discovery_operator_poll_last_success_timestamp_seconds{ironic="http://b/v1/",kind="full"} 7
discovery_operator_poll_last_success_timestamp_seconds{ironic="http://b/v1/",kind="news"} 7
`)))
}

func TestAnIronicThatIsAwayFromTheStartHasASeries(t *testing.T) {
	began := time.Now()
	r := fleet.NewRegistry(nil)
	away := func(context.Context) (fleet.Source, error) { return nil, errors.New("away") }
	r.Use("a", "one", "http://a/v1/", fleet.Session{Key: "x", Connect: away}, fleet.Pace{News: time.Minute, Full: time.Hour}, func() {})
	readings := r.Readings()
	require.Len(t, readings, 1)
	assert.Equal(t, "http://a/v1/", readings[0].Endpoint)
	assert.WithinRange(t, readings[0].Full, began, time.Now())
	assert.WithinRange(t, readings[0].News, began, time.Now())
	assert.Equal(t, time.Hour, readings[0].Pace.Full)
	assert.Equal(t, 4, testutil.CollectAndCount(metrics.NewPolls(r.Readings)))
	r.Release("a")
	assert.Zero(t, testutil.CollectAndCount(metrics.NewPolls(r.Readings)), "no resource asks for it any more")
}
