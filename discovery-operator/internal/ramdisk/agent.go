// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package ramdisk is an agent of Ironic: it runs in a ramdisk on a machine, reports its hardware, and writes images and erases disks as Ironic's conductor
// says. It speaks the protocol of ironic-python-agent as far as the deploy interface direct and cleaning use it, takes commands with the token of Ironic only,
// one at a time, and writes to no disk that is in use.
package ramdisk

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// firstPause is between two heartbeats after something has happened; it doubles up to the options' heartbeat.
	firstPause = time.Second
	// reports is how often a report is tried before the agent goes on without.
	reports = 4
	// headerTimeout bounds the head of a request, and shutdownTimeout how long a last answer takes.
	headerTimeout, shutdownTimeout = 10 * time.Second, 5 * time.Second
)

// Agent is a running one.
type Agent struct {
	options Options
	machine Machine
	logs    *logs
	client  client
	// changed says that a command has ended.
	changed chan struct{}
	ending  chan Ending
	// over says that the agent ends: it is silent from then on.
	over atomic.Bool

	mu   sync.Mutex
	node node
}

// New returns an agent of a machine, which says what it does to out.
func New(o Options, m Machine, out io.Writer) *Agent {
	a := &Agent{options: o, machine: m, logs: &logs{out: out}, changed: make(chan struct{}, 1), ending: make(chan Ending, 1)}
	a.client = client{http: &http.Client{Transport: a.transport(nil)}, ironic: o.Ironic, report: o.Report}
	return a
}

// transport reaches Ironic and servers of images.
func (a *Agent) transport(proxies map[string]string) *http.Transport {
	t := &http.Transport{
		TLSClientConfig:       &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: a.options.Insecure}, //nolint:gosec // ipa-insecure says so
		ResponseHeaderTimeout: time.Minute, DialContext: (&net.Dialer{Timeout: 10 * time.Second}).DialContext,
	}
	if len(proxies) > 0 {
		t.Proxy = func(r *http.Request) (*url.URL, error) {
			if p := proxies[r.URL.Scheme]; p != "" {
				return url.Parse(p)
			}
			return nil, nil //nolint:nilnil // as http.ProxyFromEnvironment
		}
	}
	return t
}

// downloads is a client for images. Their size bounds a download, and no time does.
func (a *Agent) downloads(proxies map[string]string) *http.Client {
	return &http.Client{Transport: a.transport(proxies)}
}

func (a *Agent) say(format string, values ...any) { a.logs.say(fmt.Sprintf(format, values...)) }

// end has the agent end when the command that asked for it has been answered.
func (a *Agent) end(how Ending) {
	a.over.Store(true)
	select {
	case a.ending <- how:
	default:
	}
}

func (a *Agent) known() node {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.node
}

func (a *Agent) know(n node) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.node = n
}

// Run reports the machine and serves Ironic until it asks for an end, or the context ends.
func (a *Agent) Run(ctx context.Context) (Ending, error) {
	if err := a.options.Validate(); err != nil {
		return "", err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", a.options.Listen)
	if err != nil {
		return "", fmt.Errorf("listening for Ironic: %w", err)
	}
	callback, err := a.callback(ctx, listener.Addr())
	if err != nil {
		return "", errors.Join(err, listener.Close())
	}
	certificate := ""
	if !a.options.PlainHTTP {
		pair, text, err := selfSigned(callback.Hostname())
		if err != nil {
			return "", errors.Join(err, listener.Close())
		}
		certificate = text
		listener = tls.NewListener(listener, &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}})
	}
	work := &commands{execute: a.execute, ended: a.wake}
	s := &server{commands: work, token: func() string { return a.known().token }, started: time.Now(), ctx: ctx}
	api := &http.Server{Handler: s.handler(), ReadHeaderTimeout: headerTimeout}
	served := make(chan error, 1)
	go func() { served <- api.Serve(listener) }()
	beats := make(chan struct{})
	go func() {
		defer close(beats)
		a.live(ctx, work, callback.String(), certificate)
	}()
	var how Ending
	select {
	case how = <-a.ending:
		a.say("Ironic asks to %s the machine", how)
	case <-ctx.Done():
	case err = <-served:
		err = fmt.Errorf("serving Ironic: %w", err)
	}
	end, stop := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
	defer stop()
	_ = api.Shutdown(end) // once the command that asked for the end is answered
	cancel()
	work.work.Wait()
	<-beats
	return how, err
}

// wake has the next heartbeat sent at once.
func (a *Agent) wake() {
	if a.over.Load() {
		return
	}
	select {
	case a.changed <- struct{}{}:
	default:
	}
}

// callback is the URL by which Ironic reaches the agent.
func (a *Agent) callback(ctx context.Context, listening net.Addr) (*url.URL, error) {
	host, port, err := net.SplitHostPort(a.options.Advertise)
	if err != nil {
		host, port = "", ""
	}
	_, bound, err := net.SplitHostPort(listening.String())
	if err != nil {
		return nil, fmt.Errorf("listening for Ironic: %w", err)
	}
	if port == "" {
		port = bound
	}
	for host == "" {
		if host, err = a.source(ctx); err != nil {
			a.say("no way to Ironic yet: %v", err)
			if !pause(ctx, firstPause, nil) {
				return nil, ctx.Err()
			}
		}
	}
	scheme := "https"
	if a.options.PlainHTTP {
		scheme = "http"
	}
	return &url.URL{Scheme: scheme, Host: net.JoinHostPort(host, port)}, nil
}

// source is the address from which this machine reaches Ironic. Nothing is sent.
func (a *Agent) source(ctx context.Context) (string, error) {
	u, err := url.Parse(a.options.Ironic)
	if err != nil {
		return "", err
	}
	port := u.Port()
	if port == "" {
		port = u.Scheme
	}
	c, err := (&net.Dialer{}).DialContext(ctx, "udp", net.JoinHostPort(u.Hostname(), port))
	if err != nil {
		return "", err
	}
	defer func() { _ = c.Close() }()
	host, _, err := net.SplitHostPort(c.LocalAddr().String())
	return host, err
}

// live reports the machine, looks its node up and sends heartbeats, and again from the start when the node is gone.
func (a *Agent) live(ctx context.Context, work *commands, callback, certificate string) {
	for ctx.Err() == nil {
		macs, uuid := a.introduce(ctx)
		if !a.find(ctx, uuid, macs) {
			return
		}
		work.reset()
		a.beat(ctx, macs, callback, certificate)
		a.know(node{})
	}
}

// introduce posts the report, a few times where it is refused: Ironic knows the machine perhaps, and takes a report only when it waits for one.
func (a *Agent) introduce(ctx context.Context) (macs []string, uuid string) {
	for wait, n := firstPause, 0; ctx.Err() == nil; n++ {
		r, err := a.options.collect()
		if err == nil {
			macs = r.macs
			if a.options.Report == "" {
				return macs, ""
			}
			if uuid, err = a.client.post(ctx, r); err == nil {
				a.say("reported the hardware: the node is %s", uuid)
				return macs, uuid
			}
		}
		a.say("%v", err)
		if len(macs) > 0 && n+1 >= reports {
			a.say("going on without a report")
			return macs, ""
		}
		pause(ctx, wait, nil)
		wait = min(2*wait, a.options.Heartbeat)
	}
	return macs, ""
}

// find asks for the node until Ironic gives it with its token. It returns false when the context has ended.
func (a *Agent) find(ctx context.Context, uuid string, macs []string) bool {
	said := ""
	for wait := firstPause; ctx.Err() == nil; wait = min(2*wait, a.options.Heartbeat) {
		n, err := a.client.lookup(ctx, uuid, macs)
		if err == nil {
			a.know(n)
			a.say("this machine is node %s", n.uuid)
			return true
		}
		if text := err.Error(); text != said {
			said = text
			a.say("%s", text)
		}
		pause(ctx, wait, nil)
	}
	return false
}

// beat sends heartbeats until the node is gone. After a command has ended they are frequent at first: Ironic skips one while it works on the node.
func (a *Agent) beat(ctx context.Context, macs []string, callback, certificate string) {
	for wait := firstPause; ctx.Err() == nil; {
		n := a.known()
		err := a.client.heartbeat(ctx, n, callback, certificate)
		var refused refusal
		switch {
		case err == nil:
		case errors.As(err, &refused) && refused.status == http.StatusNotFound:
			a.say("Ironic has no node %s any more", n.uuid)
			return
		default:
			a.say("%v", err)
			if errors.As(err, &refused) && refused.status == http.StatusBadRequest && a.renew(ctx, macs) {
				wait = firstPause
			}
		}
		most := a.options.Heartbeat
		if n.heartbeat > 0 {
			most = min(most, n.heartbeat/3)
		}
		if wait = min(wait, most); !pause(ctx, wait, a.changed) {
			wait = firstPause
			continue
		}
		wait *= 2
	}
}

// renew asks for another token, which Ironic gives when it has forgotten the present one. It reports whether there is one.
func (a *Agent) renew(ctx context.Context, macs []string) bool {
	n, err := a.client.lookup(ctx, a.known().uuid, macs)
	if err != nil {
		a.say("%v", err)
		return false
	}
	a.know(n)
	return true
}

// pause waits. It returns false when something has happened, or the context has ended.
func pause(ctx context.Context, d time.Duration, changed <-chan struct{}) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-changed:
		return false
	case <-timer.C:
		return true
	}
}
