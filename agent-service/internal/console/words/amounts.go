// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package words

import (
	"fmt"
	"time"
)

// Size is a size for people: 480 GB, 64 GiB where binary.
func Size(n int64, binary bool) string {
	step, units := int64(1000), []string{"B", "kB", "MB", "GB", "TB", "PB"}
	if binary {
		step, units = 1024, []string{"B", "KiB", "MiB", "GiB", "TiB", "PiB"}
	}
	i := 0
	value := float64(n)
	for value >= float64(step) && i < len(units)-1 {
		value /= float64(step)
		i++
	}
	if value >= 10 || value == float64(int64(value)) {
		return fmt.Sprintf("%.0f %s", value, units[i])
	}
	return fmt.Sprintf("%.1f %s", value, units[i])
}

// Since is how long ago something was, in its largest unit.
func Since(d time.Duration) string {
	switch {
	case d < 5*time.Second:
		return Of("since.now")
	case d < time.Minute:
		return Of("since.seconds", int(d.Seconds()))
	case d < time.Hour:
		return Of("since.minutes", int(d.Minutes()))
	case d < 48*time.Hour:
		return Of("since.hours", int(d.Hours()))
	default:
		return Of("since.days", int(d.Hours()/24))
	}
}
