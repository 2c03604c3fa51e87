// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package poolplan

import (
	"math"
	"time"

	hivev1 "github.com/muster-io/muster/apis/hive/v1"
)

// RecommendationWindow is the time over which claims are counted for the recommended runningCount.
const RecommendationWindow = time.Hour

// recommendation says how many clusters should run so that those that are claimed while a sleeping one wakes up find a running one: claims in the window × time to a usable
// cluster ÷ window, rounded up. Without claims, or without any cluster that became usable, there is nothing to recommend.
func (r report) recommendation() *hivev1.RunningCountRecommendation {
	took := r.timeToUsable()
	if r.in.RecentClaims == 0 || took <= 0 {
		return nil
	}
	wanted := math.Ceil(float64(r.in.RecentClaims) * took.Seconds() / RecommendationWindow.Seconds())
	return &hivev1.RunningCountRecommendation{
		RunningCount:    count32(int(wanted)),
		ClaimsPerHour:   count32(r.in.RecentClaims),
		SecondsToUsable: count32(int(math.Ceil(took.Seconds()))),
	}
}

// timeToUsable is how long clusters took to resume, on average; if none did, how long they took to be installed.
func (r report) timeToUsable() time.Duration {
	var resumed, installed time.Duration
	samples, installations := 0, 0
	for _, m := range r.fleet.members {
		if m.ResumeTook > 0 {
			resumed += m.ResumeTook
			samples++
		}
		if m.InstalledAt.After(m.Created) {
			installed += m.InstalledAt.Sub(m.Created)
			installations++
		}
	}
	switch {
	case samples > 0:
		return resumed / time.Duration(samples)
	case installations > 0:
		return installed / time.Duration(installations)
	}
	return 0
}
