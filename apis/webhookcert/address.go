// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package webhookcert

import (
	"fmt"
	"net"
	"strconv"
)

// SplitAddress splits the value of --webhook-bind-address, such as ":9443". The port is 0 where there is no webhook, for "" and "0".
func SplitAddress(address string) (host string, port int, err error) {
	if address == "0" || address == "" {
		return "", 0, nil
	}
	host, text, err := net.SplitHostPort(address)
	if err == nil {
		port, err = strconv.Atoi(text)
	}
	if err != nil {
		return "", 0, fmt.Errorf("--webhook-bind-address=%s: write an address such as :9443, or 0", address)
	}
	return host, port, nil
}
