// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package process

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"strconv"
	"time"

	"github.com/muster-io/muster/pool-operator/internal/controlplane"
	"github.com/muster-io/muster/pool-operator/internal/provision"
)

// checkTimeout bounds the question to the cluster of one observation.
const checkTimeout = 3 * time.Second

// observe says what is there now. Of a cluster that another operator runs nothing can be said.
func (c *cluster) observe(ctx context.Context) (provision.Observation, *provision.Problem) {
	c.mu.Lock()
	if problem := c.elsewhere(); problem != nil {
		c.mu.Unlock()
		return provision.Observation{}, problem
	}
	c.refresh()
	seen := c.seen()
	plane := c.plane
	c.mu.Unlock()
	if seen.State != provision.StateReady {
		return seen, nil
	}
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	version, err := plane.Check(ctx)
	if err == nil {
		seen.Version = version
		if plane.Full(ctx) {
			seen.Problem = provision.StorageFull("of this machine", plane.EtcdSocket())
		}
		return seen, nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.state != provision.StateReady {
		// It has ended while it was asked.
		return c.seen(), nil
	}
	seen.State = provision.StateUnreachable
	seen.Problem = &provision.Problem{
		Reason: provision.ReasonNotAnswering, Component: "kube-apiserver",
		Message: fmt.Sprintf("kube-apiserver runs but is not ready: %v", err),
	}
	return seen, nil
}

// seen is what is known without asking the cluster. c.mu is held.
func (c *cluster) seen() provision.Observation {
	seen := provision.Observation{State: c.state, ID: c.id, Since: c.since, Failures: c.failures, Problem: c.problem, URL: c.url(), Started: wasStarted(c.dir)}
	if access, err := c.runtime.access(c.ref); err == nil {
		seen.AccessID = access.ID()
	}
	seen.Outdated = c.state == provision.StateReady && c.plane.Outdated()
	if c.state == provision.StateStopped || c.state == provision.StateFailed {
		if lost := controlplane.LostData(c.dir); lost != "" {
			seen.DataMissing = "The directory " + lost + ", which had the data of the cluster, is missing or empty."
		}
	}
	return seen
}

// refresh looks at the disk where nothing runs: data may have come or gone without this runtime. c.mu is held.
func (c *cluster) refresh() {
	switch c.state {
	case provision.StateStopped, provision.StateFailed, provision.StateAbsent:
	default:
		return
	}
	record, err := readRecord(c.dir)
	switch {
	case err == nil:
		c.id = record.ID
	case errors.Is(err, fs.ErrNotExist):
		if _, err := os.Stat(c.dir); err == nil {
			return
		}
		if c.state != provision.StateAbsent {
			_ = c.closePlane()
			c.state, c.id = provision.StateAbsent, ""
		}
		return
	}
	if c.state == provision.StateAbsent {
		c.state = provision.StateStopped
	}
}

// url is where the cluster's API server is or will be again; "" while that is not decided.
func (c *cluster) url() string {
	if c.state == provision.StateAbsent || c.state == provision.StateDeleting {
		return ""
	}
	if c.plane != nil {
		return c.plane.URL()
	}
	port := controlplane.RecordedPort(c.dir)
	if port == 0 {
		return ""
	}
	return "https://" + net.JoinHostPort(c.runtime.options.Host.String(), strconv.Itoa(port))
}
