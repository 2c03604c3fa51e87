// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"
	"fmt"
	"time"

	"github.com/muster-io/muster/discovery-operator/internal/inventory"
)

// Pager is a Source that also lists page by page. Of a fleet that is read for the first time, machines are in the mirror while others are still being listed: a list
// of 10,000 nodes and their ports takes Ironic most of ten seconds.
type Pager interface {
	// NodesPage and PortsPage list what was made after the UUID given, so many at most, and say whether there is more.
	NodesPage(ctx context.Context, after string, limit int) (nodes []inventory.Node, more bool, err error)
	PortsPage(ctx context.Context, after string, limit int) (ports []inventory.Port, more bool, err error)
}

const (
	// firstPage is small, so that there is work to do soon, and nextPage is as large as Ironic allows.
	firstPage, nextPage = 200, 1000
	// maxPages bounds one list: ten million rows.
	maxPages = 10_000
)

// list is a list that is read page by page.
type list[T any] struct {
	uuid func(T) string
	page func(ctx context.Context, after string, limit int) (rows []T, more bool, err error)
	// all are the rows so far, whole says that there are no more.
	all   []T
	pages int
	whole bool
}

// next reads a page.
func (l *list[T]) next(ctx context.Context, limit int) (rows []T, err error) {
	if l.pages > 0 {
		limit = nextPage
	}
	after := ""
	if len(l.all) > 0 {
		after = l.uuid(l.all[len(l.all)-1])
	}
	rows, more, err := l.page(ctx, after, limit)
	if err != nil {
		return nil, err
	}
	l.pages++
	l.whole = !more || len(rows) == 0
	if !l.whole && (l.uuid(rows[len(rows)-1]) == after || l.pages > maxPages) {
		return nil, inventory.Failf(inventory.ProblemInvalid, "a page of a list does not lead on to the next one")
	}
	l.all = append(l.all, rows...)
	return rows, nil
}

// firstReading reads a fleet of which nothing is known in a session.
type firstReading struct {
	*Poller
	session *session
	source  Source
	pager   Pager
}

// read lists all nodes and ports, and shows each page with the ports of its nodes as soon as it is there.
func (f firstReading) read(ctx context.Context) ([]inventory.Node, []inventory.Port, error) {
	nodes := &list[inventory.Node]{uuid: func(n inventory.Node) string { return n.UUID }, page: f.pager.NodesPage}
	ports := &list[inventory.Port]{uuid: func(p inventory.Port) string { return p.UUID }, page: f.pager.PortsPage}
	listed := map[string]bool{}
	var early []inventory.Port // of nodes that are not listed yet
	for !nodes.whole {
		asked := time.Now()
		page, err := nodes.next(ctx, firstPage)
		if err != nil {
			return nil, nil, fmt.Errorf("listing nodes: %w", err)
		}
		for _, n := range page {
			listed[n.UUID] = true
		}
		shown, later := split(early, listed)
		for last := lastOf(page); !ports.whole && (nodes.whole || len(later) == 0 && (len(shown) == 0 || shown[len(shown)-1].Node != last)); {
			rows, err := ports.next(ctx, 2*firstPage)
			if err != nil {
				return nil, nil, fmt.Errorf("listing ports: %w", err)
			}
			now, beyond := split(rows, listed)
			shown, later = append(shown, now...), append(later, beyond...)
		}
		early = later
		if nodes.whole { // the caller shows all
			break
		}
		if err := f.show(ctx, asked, page, shown); err != nil {
			return nil, nil, err
		}
	}
	return nodes.all, ports.all, nil
}

// lastOf is the UUID of the last node, whose ports come last.
func lastOf(nodes []inventory.Node) string {
	if len(nodes) == 0 {
		return ""
	}
	return nodes[len(nodes)-1].UUID
}

// split parts the ports of listed nodes from the others.
func split(ports []inventory.Port, listed map[string]bool) (of, others []inventory.Port) {
	for _, port := range ports {
		if listed[port.Node] {
			of = append(of, port)
		} else {
			others = append(others, port)
		}
	}
	return of, others
}

// show takes a page into the mirror, of which it says that it is partial.
func (f firstReading) show(ctx context.Context, asked time.Time, nodes []inventory.Node, ports []inventory.Port) error {
	version, err := f.source.Version(ctx)
	if err != nil {
		return fmt.Errorf("asking for the version: %w", err)
	}
	f.answered(f.session, f.source, nil)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.through, f.vouched = f.session, !f.session.Unverified
	f.health.Version, f.health.Err, f.health.Polled, f.health.Partial = version, nil, true, true
	f.take(asked, nodes, ports, false, nil)
	return nil
}
