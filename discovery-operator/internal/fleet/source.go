// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"

	"github.com/muster-io/muster/discovery-operator/internal/inventory"
)

// Lister lists what Ironic knows, in the order in which it was made, beginning after the UUID given or at the first one. It
// fails with inventory.ErrNotFound when that UUID is gone.
type Lister interface {
	Nodes(ctx context.Context, after string) ([]inventory.Node, error)
	Ports(ctx context.Context, after string) ([]inventory.Port, error)
	// Version is the version of the API that is spoken.
	Version(ctx context.Context) (string, error)
	// Enter asks, in one request, whether the credentials are accepted.
	Enter(ctx context.Context) error
}

// Reader reads one machine. Each method fails with inventory.ErrNotFound when there is nothing.
type Reader interface {
	Node(ctx context.Context, uuid string) (inventory.Node, error)
	PortsOf(ctx context.Context, node string) ([]inventory.Port, error)
	Report(ctx context.Context, node string) (*inventory.Report, error)
}

// Source is an Ironic, as far as it is read.
type Source interface {
	Lister
	Reader
}

// Connect makes a source. It is called before each reading, so that rotated credentials are used; it returns the same source while
// nothing changed.
type Connect func(ctx context.Context) (Source, error)
