// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package ironic

import (
	"context"
	"net/http"
	"net/url"
)

// powerOfItsOwn is the key of a node's driver_info that takes the node's power out of what parent and children share.
const powerOfItsOwn = "has_dedicated_power_supply"

// parentFields is the part of a node that tells its parent.
type parentFields struct {
	Parent string         `json:"parent_node"`
	Info   map[string]any `json:"driver_info"`
}

// looped reports whether a node is its own parent. Ironic 29.0.5 of Debian 13 makes each node its own parent when the node is changed, and no change undoes
// that. Its periodic checks, those of time-outs among them, leave nodes with a parent out.
func (k parentFields) looped(uuid string) bool { return uuid != "" && k.Parent == uuid }

// tied reports whether a node is its own parent and shares its power with it. To switch a node Ironic locks parent and children, too, so the node waits for
// itself and can never be switched.
func (k parentFields) tied(uuid string) bool {
	dedicated, _ := k.Info[powerOfItsOwn].(bool)
	return k.looped(uuid) && !dedicated
}

// patch changes a node, whose power can be switched afterwards. The query begins with a question mark, or is empty.
func (c *Client) patch(ctx context.Context, operation, uuid, query string, changes []change) error {
	path := "nodes/" + url.PathEscape(uuid)
	var after parentFields
	if err := c.call(ctx, operation, http.MethodPatch, path+query, changes, &after); err != nil || !after.tied(uuid) {
		return err
	}
	return c.untie(ctx, uuid)
}

// untie makes a node that is its own parent one whose power can be switched. An Ironic without the fault removes the parent; one with the fault keeps it.
func (c *Client) untie(ctx context.Context, uuid string) error {
	changes := []change{{"remove", "/parent_node", nil}, {"add", "/driver_info/" + powerOfItsOwn, true}}
	return c.call(ctx, "untie_node", http.MethodPatch, "nodes/"+url.PathEscape(uuid), changes, nil)
}
