// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

type busyClaims chan struct{}

func (c busyClaims) Idle() <-chan struct{} { return c }

func TestEventsWaitWhileClaimsAreServed(t *testing.T) {
	const pools, events = "https://api/apis/hive.openshift.io/v1/namespaces/a/clusterpools", "https://api/apis/events.k8s.io/v1/namespaces/a/events"
	for name, c := range map[string]struct {
		method, url string
		served      time.Duration
		want        time.Duration
	}{
		"an event waits":                    {http.MethodPost, events, time.Second, time.Second},
		"so does the series of an event":    {http.MethodPatch, events + "/e", time.Second, time.Second},
		"an event does not wait for ever":   {http.MethodPost, events, time.Hour, longestDelayOfEvents},
		"an event does not wait for naught": {http.MethodPost, events, 0, 0},
		"what is read does not wait":        {http.MethodGet, events, time.Second, 0},
		"other writes do not wait":          {http.MethodPatch, pools + "/p", time.Second, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				claims, started := make(busyClaims), time.Now()
				end := time.AfterFunc(c.served, func() { close(claims) })
				defer end.Stop()
				synctest.Wait()
				var sent time.Duration
				trip := eventsAfter(claims)(roundTripper(func(*http.Request) (*http.Response, error) {
					sent = time.Since(started)
					return &http.Response{Body: http.NoBody}, nil
				}))
				request, err := http.NewRequestWithContext(t.Context(), c.method, c.url, http.NoBody)
				require.NoError(t, err)
				response, err := trip.RoundTrip(request)
				require.NoError(t, err)
				require.NoError(t, response.Body.Close())
				require.Equal(t, c.want, sent)
			})
		})
	}
}
