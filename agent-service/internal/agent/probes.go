// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/beevik/ntp"

	"github.com/muster-io/muster/agent-service/api"
	"github.com/muster-io/muster/agent-service/internal/agent/registry"
	"github.com/muster-io/muster/agent-service/internal/agentproto"
)

const (
	probeTimeout = 5 * time.Second
	// parallel is how many probes run at once.
	parallel = 16
)

// timeSources asks each time server once (SNTP). A server that answers sanely counts as synced: the agent compares. The live image sets the clock.
func timeSources(ctx context.Context, step api.Step) (any, error) {
	var request agentproto.NTPArgs
	if err := arguments(step, &request); err != nil {
		return nil, err
	}
	names := strings.FieldsFunc(request.Sources, func(r rune) bool { return r == ',' || r == ' ' })
	found := make([]agentproto.NTPSource, len(names))
	each(len(names), func(i int) { found[i] = agentproto.NTPSource{Name: names[i], State: askTime(ctx, names[i])} })
	return agentproto.NTPReply{Sources: found}, nil
}

// each runs do for 0..n-1, some at once.
func each(n int, do func(i int)) {
	var workers sync.WaitGroup
	slots := make(chan struct{}, parallel)
	for i := range n {
		slots <- struct{}{}
		workers.Go(func() {
			do(i)
			<-slots
		})
	}
	workers.Wait()
}

// synchronized and unreachable are states of time servers, as agents in the field report them.
const (
	synchronized = "synced"
	unreachable  = "unreachable"
)

// ntpPort is replaced by tests.
var ntpPort = 123

func askTime(ctx context.Context, name string) string {
	answer, err := ntp.QueryWithOptions(net.JoinHostPort(name, strconv.Itoa(ntpPort)), ntp.QueryOptions{
		Timeout: probeTimeout,
		Dialer:  func(_, remote string) (net.Conn, error) { return new(net.Dialer).DialContext(ctx, "udp", remote) },
	})
	switch {
	case err != nil:
		return unreachable
	case answer.Validate() != nil:
		return "error"
	}
	return synchronized
}

// reach tries the addresses of the other hosts. A connection that is refused was answered, so the host is there.
func reach(ctx context.Context, step api.Step) (any, error) {
	var peers []agentproto.Peer
	if err := arguments(step, &peers); err != nil {
		return nil, err
	}
	hosts := make([]agentproto.RemoteHost, len(peers))
	each(len(peers), func(i int) {
		hosts[i] = agentproto.RemoteHost{HostID: peers[i].HostID, L3: []agentproto.Reached{}}
		for _, nic := range peers[i].NICs {
			for _, address := range nic.IPAddresses {
				hosts[i].L3 = append(hosts[i].L3, connect(ctx, address))
			}
		}
	})
	return agentproto.ConnectivityReply{Hosts: hosts}, nil
}

func connect(ctx context.Context, address string) agentproto.Reached {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	begin := time.Now()
	connection, err := new(net.Dialer).DialContext(ctx, "tcp", net.JoinHostPort(address, "22"))
	if err == nil {
		_ = connection.Close()
	}
	outcome := agentproto.Reached{RemoteIP: address, Successful: err == nil || errors.Is(err, syscall.ECONNREFUSED), RTT: float64(time.Since(begin).Microseconds()) / 1000}
	if !outcome.Successful {
		outcome.RTT, outcome.Loss = 0, 100
	}
	return outcome
}

// resolve looks names up.
func resolve(ctx context.Context, step api.Step) (any, error) {
	var request agentproto.DomainsArgs
	if err := arguments(step, &request); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, 4*probeTimeout)
	defer cancel()
	found := make([]agentproto.Resolution, len(request.Domains))
	each(len(found), func(i int) {
		found[i] = agentproto.Resolution{Name: request.Domains[i].Name, IPv4: []string{}, IPv6: []string{}}
		addresses, err := net.DefaultResolver.LookupNetIP(ctx, "ip", request.Domains[i].Name)
		if err != nil {
			return
		}
		for _, a := range addresses {
			if a = a.Unmap(); a.Is4() {
				found[i].IPv4 = append(found[i].IPv4, a.String())
			} else {
				found[i].IPv6 = append(found[i].IPv6, a.String())
			}
		}
	})
	return agentproto.DomainsReply{Resolutions: found}, nil
}

// reachAPI tries to connect to the API of a cluster. Any answer counts: the API may want credentials that the machine does not have yet.
func reachAPI(ctx context.Context, step api.Step) (any, error) {
	var request agentproto.APIArgs
	if err := arguments(step, &request); err != nil {
		return nil, err
	}
	address, err := url.Parse(request.URL)
	if err != nil || address.Port() == "" {
		return nil, fmt.Errorf("the step %s names no address with a port", step.StepType)
	}
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	connection, err := new(net.Dialer).DialContext(ctx, "tcp", address.Host)
	if err != nil {
		return agentproto.APIReply{URL: request.URL, Error: err.Error()}, nil
	}
	_ = connection.Close()
	return agentproto.APIReply{Success: true, URL: request.URL}, nil
}

// diskSpeed measures how long the disk takes to write 4 KiB through, with what stands there already: the median, which a moment of other work does not change.
func diskSpeed(_ context.Context, step api.Step) (any, error) {
	var request agentproto.DiskArgs
	if err := arguments(step, &request); err != nil {
		return nil, err
	}
	disk, err := os.OpenFile(request.Path, os.O_RDWR|syscall.O_DSYNC, 0)
	if err != nil {
		return nil, fmt.Errorf("opening the disk: %w", err)
	}
	defer func() { _ = disk.Close() }()
	block := make([]byte, 4096)
	if _, err := io.ReadFull(disk, block); err != nil {
		return nil, fmt.Errorf("reading the disk: %w", err)
	}
	var took [17]time.Duration
	for i := range took {
		begin := time.Now()
		if _, err := disk.WriteAt(block, 0); err != nil {
			return nil, fmt.Errorf("writing the disk: %w", err)
		}
		took[i] = time.Since(begin)
	}
	slices.Sort(took[:])
	return agentproto.DiskReply{Path: request.Path, Sync: took[len(took)/2].Milliseconds()}, nil
}

// available asks whether images can be had: disk images by their address, container images at their registry with the pull secret.
func (m *Real) available(ctx context.Context, step api.Step) (any, error) {
	var request agentproto.ImagesArgs
	if err := arguments(step, &request); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, time.Duration(max(1, request.Timeout))*time.Second)
	defer cancel()
	found, from := make([]agentproto.Availability, len(request.Images)), registry.Client{HTTP: m.Client, PullSecret: m.PullSecret}
	each(len(found), func(i int) {
		found[i] = agentproto.Availability{Name: request.Images[i], Result: agentproto.Available}
		if err := from.Has(ctx, request.Images[i]); err != nil {
			found[i].Result = agentproto.Unavailable
		}
	})
	return agentproto.ImagesReply{Images: found}, nil
}
