// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package ironic

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/muster-io/muster/discovery-operator/internal/inventory"
)

// pageSize is the largest page that Ironic serves.
const pageSize = 1000

// maxPages bounds one list: ten million rows.
const maxPages = 10000

const nodeFields = "uuid,name,driver,provision_state,last_error,instance_uuid,reservation,inspection_finished_at"

type rawNode struct {
	UUID        string `json:"uuid"`
	Name        string `json:"name"`
	Driver      string `json:"driver"`
	State       string `json:"provision_state"`
	LastError   string `json:"last_error"`
	Instance    string `json:"instance_uuid"`
	Reservation string `json:"reservation"`
	InspectedAt string `json:"inspection_finished_at"`
}

// inspected is when the last inspection ended, zero if none did.
func (r rawNode) inspected() time.Time {
	at, err := time.Parse(time.RFC3339, r.InspectedAt)
	if err != nil {
		return time.Time{}
	}
	return at.UTC()
}

func (r rawNode) node() inventory.Node {
	n := inventory.Node{
		UUID: r.UUID, Name: r.Name, Driver: r.Driver, State: r.State, LastError: bounded256(r.LastError), Instance: r.Instance,
		Locked: r.Reservation != "",
	}
	if at := r.inspected(); !at.IsZero() {
		n.Inspected = at.Format(time.RFC3339)
	}
	return n
}

type rawPort struct {
	UUID    string `json:"uuid"`
	Node    string `json:"node_uuid"`
	Address string `json:"address"`
	PXE     bool   `json:"pxe_enabled"`
}

// Nodes lists the nodes that were made after the one named, or all when it is empty, oldest first. It fails with
// ErrNotFound when the named node is gone.
func (c *Client) Nodes(ctx context.Context, after string) ([]inventory.Node, error) {
	return pages(after, func(n inventory.Node) string { return n.UUID }, func(marker string) ([]inventory.Node, bool, error) {
		return c.NodesPage(ctx, marker, pageSize)
	})
}

// NodesPage is the beginning of what Nodes lists, and whether there is more.
func (c *Client) NodesPage(ctx context.Context, after string, limit int) (nodes []inventory.Node, more bool, err error) {
	query := url.Values{"fields": {nodeFields}, "limit": {strconv.Itoa(limit)}}
	s, err := c.connect(ctx)
	if err != nil {
		return nil, false, err
	}
	if s.version >= versionChildren {
		// A node can be its own parent, see parentFields.tied; lists leave it out unless asked so.
		query.Set("include_children", "true")
	}
	setMarker(query, after)
	var page struct {
		Nodes []rawNode `json:"nodes"`
		Next  string    `json:"next"`
	}
	if err := c.call(ctx, "list_nodes", http.MethodGet, "nodes?"+query.Encode(), nil, &page); err != nil {
		return nil, false, err
	}
	for _, r := range page.Nodes {
		nodes = append(nodes, r.node())
	}
	return nodes, page.Next != "", nil
}

// Enter asks for one node, which shows whether Ironic accepts the credentials: Ironic shows its versions without any.
func (c *Client) Enter(ctx context.Context) error {
	var page json.RawMessage
	return c.call(ctx, "enter", http.MethodGet, "nodes?fields=uuid&limit=1", nil, &page)
}

const portFields = "uuid,address,node_uuid,pxe_enabled"

// Ports lists the ports that were made after the one named, or all when it is empty, oldest first. It fails with
// ErrNotFound when the named port is gone.
func (c *Client) Ports(ctx context.Context, after string) ([]inventory.Port, error) {
	return c.ports(ctx, url.Values{}, after)
}

// PortsPage is the beginning of what Ports lists, and whether there is more.
func (c *Client) PortsPage(ctx context.Context, after string, limit int) (ports []inventory.Port, more bool, err error) {
	return c.portsPage(ctx, url.Values{}, after, limit)
}

// PortsOf lists the ports of one node.
func (c *Client) PortsOf(ctx context.Context, node string) ([]inventory.Port, error) {
	return c.ports(ctx, url.Values{"node": {node}}, "")
}

func (c *Client) ports(ctx context.Context, query url.Values, after string) ([]inventory.Port, error) {
	return pages(after, func(p inventory.Port) string { return p.UUID }, func(marker string) ([]inventory.Port, bool, error) {
		return c.portsPage(ctx, query, marker, pageSize)
	})
}

func (c *Client) portsPage(ctx context.Context, query url.Values, after string, limit int) (ports []inventory.Port, more bool, err error) {
	query.Set("fields", portFields)
	query.Set("limit", strconv.Itoa(limit))
	setMarker(query, after)
	var page struct {
		Ports []rawPort `json:"ports"`
		Next  string    `json:"next"`
	}
	if err := c.call(ctx, "list_ports", http.MethodGet, "ports?"+query.Encode(), nil, &page); err != nil {
		return nil, false, err
	}
	for _, r := range page.Ports {
		ports = append(ports, inventory.Port{UUID: r.UUID, Node: r.Node, MAC: strings.ToLower(r.Address), PXE: r.PXE})
	}
	return ports, page.Next != "", nil
}

func setMarker(query url.Values, marker string) {
	query.Del("marker")
	if marker != "" {
		query.Set("marker", marker)
	}
}

// pages calls fetch with the marker of each page, and returns the rows of all. The next page begins after the last row of this one; the address that the
// service proposes for it is only taken as a sign that there is one.
func pages[T any](marker string, uuid func(T) string, fetch func(marker string) (rows []T, more bool, err error)) ([]T, error) {
	var all []T
	for range maxPages {
		rows, more, err := fetch(marker)
		if err != nil {
			return nil, err
		}
		all = append(all, rows...)
		if !more || len(rows) == 0 {
			return all, nil
		}
		last := uuid(rows[len(rows)-1])
		if last == "" || last == marker {
			return nil, inventory.Failf(inventory.ProblemInvalid, "a page of a list does not lead on to the next one")
		}
		marker = last
	}
	return nil, inventory.Failf(inventory.ProblemInvalid, "a list has more than %d pages", maxPages)
}

// Node reads one node. ErrNotFound is the only proof that a node is gone.
func (c *Client) Node(ctx context.Context, uuid string) (inventory.Node, error) {
	var r rawNode
	if err := c.call(ctx, "get_node", http.MethodGet, "nodes/"+url.PathEscape(uuid)+"?fields="+nodeFields, nil, &r); err != nil {
		return inventory.Node{}, err
	}
	return r.node(), nil
}

// Report reads what the machine said during inspection: from Ironic, else from ironic-inspector if there is one. It fails
// with ErrNotFound while there is nothing.
func (c *Client) Report(ctx context.Context, uuid string) (*inventory.Report, error) {
	s, err := c.connect(ctx)
	if err != nil {
		return nil, err
	}
	var data json.RawMessage
	if s.version >= versionInventory && s.inspector == nil {
		err = c.call(ctx, "get_inventory", http.MethodGet, "nodes/"+url.PathEscape(uuid)+"/inventory", nil, &data)
	} else {
		_, err = c.send(ctx, s.inspector, "get_introspection", http.MethodGet, "introspection/"+url.PathEscape(uuid)+"/data", nil, &data)
		if errors.Is(err, inventory.ErrNotFound) && s.version >= versionInventory {
			err = c.call(ctx, "get_inventory", http.MethodGet, "nodes/"+url.PathEscape(uuid)+"/inventory", nil, &data)
		}
	}
	if err != nil {
		return nil, err
	}
	report, err := inventory.ParseReport(data)
	if err != nil {
		return nil, inventory.Failf(inventory.ProblemRefused, "inventory of node %s: %s", uuid, bounded256(err.Error()))
	}
	return report, nil
}

// SetDriver switches the driver of a node and resets its interfaces to the defaults of that driver, but for the boot interface where one is asked for. It fails with
// ErrBusy while Ironic works on the node, and with ErrRefused when the driver, or all these boot interfaces, are not enabled.
func (c *Client) SetDriver(ctx context.Context, uuid, driver string, boot ...string) error {
	patch := []change{{"replace", "/driver", driver}}
	booting, err := c.booting(ctx, driver, boot)
	if err != nil {
		return err
	}
	return c.patch(ctx, "set_driver", uuid, "?reset_interfaces=True", append(patch, booting...))
}

// DeleteNode removes a node with its ports and inventory. It fails with ErrNotFound when the node is gone already, and with
// ErrBusy while Ironic works on it or something uses it.
func (c *Client) DeleteNode(ctx context.Context, uuid string) error {
	return c.call(ctx, "delete_node", http.MethodDelete, "nodes/"+url.PathEscape(uuid), nil, nil)
}
