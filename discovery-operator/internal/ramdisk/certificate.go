// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package ramdisk

import (
	"crypto/tls"
	"time"

	"github.com/muster-io/muster/apis/pki"
)

// The clock of a machine can be wrong by a day.
const clockError, certificateLife = 24 * time.Hour, 90 * 24 * time.Hour

// selfSigned makes the certificate by which Ironic knows the agent of this boot, for an address or a name.
func selfSigned(host string) (tls.Certificate, string, error) {
	now := time.Now()
	made, err := pki.NewSelfSigned([]string{host}, pki.Period{From: now.Add(-clockError), Until: now.Add(certificateLife)})
	if err != nil {
		return tls.Certificate{}, "", err
	}
	text, _, err := made.Encode()
	return tls.Certificate{Certificate: [][]byte{made.Certificate.Raw}, PrivateKey: made.Key}, string(text), err
}
