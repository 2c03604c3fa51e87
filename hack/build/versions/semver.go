// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package versions

import (
	"cmp"
	"strconv"
	"strings"
)

// compare orders versions as semver.org rules 9 to 11 do. A pseudo-version is a pre-release, so its time decides.
func compare(a, b string) int {
	a, _, _ = strings.Cut(a, "+")
	b, _, _ = strings.Cut(b, "+")
	coreA, preA, _ := strings.Cut(strings.TrimPrefix(a, "v"), "-")
	coreB, preB, _ := strings.Cut(strings.TrimPrefix(b, "v"), "-")
	if c := compareParts(coreA, coreB); c != 0 {
		return c
	}
	switch {
	case preA == preB:
		return 0
	case preA == "":
		return 1
	case preB == "":
		return -1
	}
	return compareParts(preA, preB)
}

func compareParts(a, b string) int {
	partsA, partsB := strings.Split(a, "."), strings.Split(b, ".")
	for i := range min(len(partsA), len(partsB)) {
		numberA, errA := strconv.ParseUint(partsA[i], 10, 64)
		numberB, errB := strconv.ParseUint(partsB[i], 10, 64)
		var c int
		switch {
		case errA == nil && errB == nil:
			c = cmp.Compare(numberA, numberB)
		case errA == nil: // numbers are lower than words
			c = -1
		case errB == nil:
			c = 1
		default:
			c = strings.Compare(partsA[i], partsB[i])
		}
		if c != 0 {
			return c
		}
	}
	return cmp.Compare(len(partsA), len(partsB))
}
