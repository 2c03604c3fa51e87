// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"bytes"
	"encoding/csv"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"time"
)

// configuration is what the programs of a control plane are run with: the files in its directory, and the arguments that name them.
type configuration struct {
	options Options
	dir     layout
	// port of the API server.
	port int
}

// configuration may only be asked for under the life lock, or before the Plane is shared: Reconfigure changes it.
func (p *Plane) configuration() configuration {
	return configuration{options: p.options, dir: p.dir, port: p.reserved.port}
}

// urlOf is the address of an API server.
func urlOf(host netip.Addr, port int) string {
	return "https://" + net.JoinHostPort(host.String(), strconv.Itoa(port))
}

// write makes or renews what expires, and the files that depend on it.
func (c configuration) write() error {
	serviceIP := net.IP(c.options.ServiceClusterIPRange.Masked().Addr().Next().AsSlice())
	if err := keys(c.dir).ensure(time.Now(), c.options.Host, serviceIP, c.options.takesNodes()); err != nil {
		return err
	}
	if err := c.writeTokens(); err != nil {
		return err
	}
	if err := c.writePolicies(); err != nil {
		return err
	}
	return c.dir.writeKubeconfigs(c.options.Name, urlOf(c.options.Host, c.port), c.options.takesNodes())
}

func (c configuration) writeTokens() error {
	var content bytes.Buffer
	w := csv.NewWriter(&content)
	for _, token := range c.options.Tokens {
		if err := w.Write([]string{token.Secret, token.User, token.User, strings.Join(token.Groups, ",")}); err != nil {
			return fmt.Errorf("writing static tokens: %w", err)
		}
	}
	w.Flush()
	return c.dir.write(c.dir.tokens(), content.Bytes())
}
