// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package reservation

import (
	"crypto/sha256"
	"encoding/hex"
)

const bmcPrefix = "bmc-"

// LeaseName is the name of the Lease that reserves the identity: one identity, one name, and the API server lets one be created.
func (r Reservation) LeaseName() string {
	if r.BMC == "" {
		return Name(r.MAC)
	}
	sum := sha256.Sum256([]byte(r.BMC))
	return bmcPrefix + hex.EncodeToString(sum[:16])
}

// Identity names what is reserved, for people.
func (r Reservation) Identity() string {
	if r.BMC == "" {
		return "MAC " + r.MAC
	}
	return "management controller " + r.BMC
}
