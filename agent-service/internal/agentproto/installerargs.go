// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package agentproto

import (
	"fmt"
	"strings"
)

// Customization is what the installer arguments of a host ask for.
type Customization struct {
	// AppendedKargs are kernel arguments that the installed system gets, and DeletedKargs those that it loses.
	AppendedKargs, DeletedKargs []string
	// CopyNetwork gives the first boot the connections that NetworkManager has in the discovery system.
	CopyNetwork bool
}

// ReadInstallerArgs reads those arguments of coreos-installer that have a meaning for an image that is written whole. The error names the first one that has none.
// The service refuses such arguments when they are set, and the agent refuses them before it writes the disk.
func ReadInstallerArgs(args []string) (Customization, error) {
	var c Customization
	for len(args) > 0 {
		name, value, joined := strings.Cut(args[0], "=")
		args = args[1:]
		var into *[]string
		switch name {
		case "-n", "--copy-network":
			c.CopyNetwork = true
			continue
		case "--append-karg":
			into = &c.AppendedKargs
		case "--delete-karg":
			into = &c.DeletedKargs
		default:
			return c, fmt.Errorf("installer argument %q has no meaning for this agent: write --append-karg, --delete-karg or --copy-network", name)
		}
		if !joined {
			if len(args) == 0 {
				return c, fmt.Errorf("installer argument %s has no value", name)
			}
			value, args = args[0], args[1:]
		}
		if value == "" || strings.ContainsAny(value, "\r\n") {
			return c, fmt.Errorf("installer argument %s has an empty value or a line break", name)
		}
		*into = append(*into, value)
	}
	return c, nil
}
