// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package access

import (
	"context"
	"net"

	"k8s.io/client-go/rest"
)

// Dialer connects to addresses as pods of a cluster do: a Service by its name <service>.<namespace>.svc, and everything else directly.
func Dialer(host *rest.Config) (func(ctx context.Context, network, address string) (net.Conn, error), error) {
	tunnel, err := newTunnel(host)
	if err != nil {
		return nil, err
	}
	return tunnel.dial, nil
}
