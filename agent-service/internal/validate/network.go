// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package validate

import (
	"fmt"
	"slices"
)

// ContainerImages is the id of the validation that images can be pulled.
const ContainerImages = "container-images-available"

// ofNetwork are the validations of what the machine reaches, in a cluster or not.
var ofNetwork = []Validation{
	{ID: "ntp-synced", Category: Network, Needs: Inventory, Func: timeSynced, About: "A time source of the host is in sync, or none was reported yet."},
	{
		ID: "time-synced-between-host-and-service", Category: Network, Needs: Inventory, Func: clocksAgree,
		About: "The clock of the host differs from that of the service by at most four minutes.",
	},
	{ID: "has-default-route", Category: Network, Needs: Inventory, Func: hasDefaultRoute, About: "The host has a default route."},
	{ID: ContainerImages, Category: Network, Func: imagesAvailable, About: "The registry answers with the pull secret of the InfraEnv."},
}

func timeSynced(in *Input) Outcome {
	synced := slices.ContainsFunc(in.NTP, func(n NTPSource) bool { return n.State == "synced" || n.State == "combined" })
	return passes(synced || len(in.NTP) == 0, "Host NTP is synced, or its time sources are not known yet", "Host could not synchronize with any NTP server")
}

// maxClockSkew is in seconds.
const maxClockSkew = 240

func clocksAgree(in *Input) Outcome {
	skew := in.Summary.ClockSkewSeconds
	return passes(skew >= -maxClockSkew && skew <= maxClockSkew, "Host clock is synchronized with service", fmt.Sprintf("Host clock differs from the service's by about %d minutes", skew/60))
}

func hasDefaultRoute(in *Input) Outcome {
	return passes(in.Summary.DefaultRoute, "Host has a default route", "Host has no default route: add a gateway to its network")
}

func imagesAvailable(in *Input) Outcome {
	bad := "The registry cannot be reached with the InfraEnv's pull secret"
	if in.Checks.RegistryDetail != "" {
		bad += ": " + in.Checks.RegistryDetail
	}
	return passes(in.Checks.Registry != Refused, "All required container images can be pulled, or have not been tried", bad)
}
