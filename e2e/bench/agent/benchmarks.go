// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/muster-io/muster/e2e/bench"
)

// Benchmarks returns all benchmarks of agent-service.
func Benchmarks() []bench.Benchmark {
	return []bench.Benchmark{
		{Name: "agent.heartbeat_10k_sqlite", Play: heartbeat(siteConfig{kube: true})},
		{Name: "agent.heartbeat_10k_postgres", Play: heartbeat(siteConfig{kube: true, postgres: true})},
		{Name: "agent.bind_1000", Play: bind},
		{Name: "agent.move_200", Play: move},
		{Name: "agent.rack_bind_500", Play: rackBind},
		{Name: "agent.rack_bind_500_storm", Play: rackBindStorm},
		{Name: "agent.rack_release_500", Play: rackRelease},
		{Name: "agent.register_1000", Play: register},
		{Name: "agent.register_storm_pg", Play: registerStorm},
		{Name: "agent.connectivity_500", Play: connectivity},
		{Name: "agent.dead_host_10k", Play: deadHost},
		{Name: "agent.restart_10k", Play: restart},
		{Name: "agent.iso_200", Play: iso},
		{Name: "agent.console_10k", Play: console},
	}
}

// heartbeat is many hosts that poll once a minute.
func heartbeat(with siteConfig) func(context.Context, *bench.Run) error {
	return func(ctx context.Context, r *bench.Run) (err error) {
		s, err := startSite(ctx, with)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, s.close()) }()
		return s.heartbeat(ctx, r)
	}
}

func (s *site) heartbeat(ctx context.Context, r *bench.Run) error {
	empty, err := s.rss()
	if err != nil {
		return err
	}
	n := r.Scaled(10_000)
	trace, _, err := s.fleet(ctx, "a", n, "-poll="+pollInterval.String(), "-ramp="+ramp.String())
	if err != nil {
		return err
	}
	if err := s.settled(ctx, n, 10*time.Minute); err != nil {
		return err
	}
	begin, err := s.steady(ctx)
	if err != nil {
		return err
	}
	done, err := r.Profile(ctx, s.service.Process.Pid)
	if err != nil {
		return err
	}
	before, err := s.counts(ctx)
	if err != nil {
		return err
	}
	used, waited := s.effort()
	end := begin.Add(time.Duration(max(90, r.Scaled(300))) * time.Second)
	if err := sleepUntil(ctx, end); err != nil {
		return err
	}
	after, err := s.counts(ctx)
	done()
	if err != nil {
		return err
	}
	all, err := read(trace)
	if err != nil {
		return err
	}
	took, missing := answered(all, begin, end)
	full, err := s.rss()
	polls := after.polls - before.polls
	r.Figure("operations", polls, "polls", bench.NoTarget)
	r.Latencies(took, 3)
	r.Figure("errors", float64(missing)+after.refusals-before.refusals, "polls", 0)
	r.Figure("sql_per_op", (after.statements-before.statements)/polls, "statements", 0.1)
	r.Figure("kube_writes", after.written-before.written, "writes", 0)
	r.Figure("requests_per_op", float64(bench.Total(after.requests.Since(before.requests).All(), nil))/polls, "requests", bench.NoTarget)
	s.effortOf(r, used, waited, polls)
	r.Figure("rss_per_item_kb", (full-empty)/float64(n), "KiB", 40)
	r.Asserted("%.0f polls of %d hosts were answered; every host stayed connected; each has an Agent", polls, n)
	r.Note("requests to the Kubernetes API: %s", bench.Describe(after.requests.Since(before.requests).All()))
	if len(took) < n {
		err = errors.Join(err, fmt.Errorf("only %d polls of %d hosts were answered", len(took), n))
	}
	return errors.Join(err, s.whole(ctx, n))
}

// steady waits until polls bring no news, which the second round of them does not, and Agents are as their hosts.
func (s *site) steady(ctx context.Context) (time.Time, error) {
	second := time.Now().Add(pollInterval + 10*time.Second)
	if err := s.hub.quiet(ctx, 15*time.Second, 15*time.Minute); err != nil {
		return second, err
	}
	err := sleepUntil(ctx, second)
	return time.Now(), err
}

// whole fails unless n hosts are free and valid, and have an Agent each.
func (s *site) whole(ctx context.Context, n int) error {
	agents, err := s.hub.agents(ctx)
	if agents != n {
		err = errors.Join(err, fmt.Errorf("%d hosts have %d Agents", n, agents))
	}
	return errors.Join(err, s.settled(ctx, n, time.Second))
}

// pollInterval is how often each host of a heartbeat polls.
const pollInterval = time.Minute

// ramp is how long the hosts of a heartbeat take to begin, which spreads their polls over each interval. Hosts that begin at once have
// benchmarks of their own.
const ramp = 3*pollInterval - 5*time.Second

// answered returns how long the polls between two times took, and how many had no answer: each host has one in every interval.
func answered(all []instructed, begin, end time.Time) (took []time.Duration, missing int) {
	last := map[string]int64{}
	gap := func(from, to int64) {
		missing += max(0, int((to-from+int64(pollInterval)/2)/int64(pollInterval))-1)
	}
	for _, t := range all {
		if before, polled := last[t.Host]; polled && t.At > begin.UnixNano() {
			gap(before, t.At)
		}
		last[t.Host] = t.At
		if t.At > begin.UnixNano() && t.At <= end.UnixNano() {
			took = append(took, t.Took)
		}
	}
	for _, at := range last {
		gap(at, end.UnixNano())
	}
	return took, missing
}

// counts are counters of the service and, for writes to its kinds, of the API server.
type counts struct {
	polls, statements, refusals, written float64
	requests                             bench.Requests
}

func (s *site) counts(ctx context.Context) (c counts, err error) {
	for name, into := range map[string]*float64{"polls": &c.polls, "sql_statements": &c.statements, "refusals": &c.refusals} {
		if *into, err = s.count(ctx, "agent_service_"+name+"_total"); err != nil {
			return c, err
		}
	}
	if s.hub == nil {
		return c, nil
	}
	if c.requests, err = s.requests(ctx); err != nil {
		return c, err
	}
	c.written, err = s.hub.writes(ctx)
	return c, err
}

func sleepUntil(ctx context.Context, at time.Time) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(time.Until(at)):
		return nil
	}
}

// bind is many binds at once, each to a cluster of its own.
func bind(ctx context.Context, r *bench.Run) (err error) {
	s, hosts, clusters, trace, err := startBound(ctx, r.Scaled(1000), 1)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	if err := s.measure(ctx, r, "bind", hosts, clusters, trace, 700); err != nil {
		return err
	}
	return s.bound(ctx, r, clusters, hosts)
}

// move is many moves at once.
func move(ctx context.Context, r *bench.Run) (err error) {
	n := r.Scaled(200)
	s, hosts, clusters, trace, err := startBound(ctx, n, 2)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	if _, err := s.verb(ctx, "bind", hosts, clusters[:n], trace); err != nil {
		return err
	}
	if err := s.measure(ctx, r, "move", hosts, clusters[n:], trace, 187); err != nil {
		return err
	}
	return s.bound(ctx, r, clusters[n:], hosts)
}

// startBound is a site with n free hosts on held polls, and perHost clusters for each.
func startBound(ctx context.Context, n, perHost int) (*site, []object, []string, string, error) {
	s, err := startSite(ctx, siteConfig{})
	if err != nil {
		return nil, nil, nil, "", err
	}
	trace, _, err := s.fleet(ctx, "a", n, "-ramp=5s")
	var hosts []object
	var clusters []string
	if err == nil {
		err = s.settled(ctx, n, 2*time.Minute)
	}
	if err == nil {
		hosts, err = s.hosts(ctx)
	}
	if err == nil {
		clusters, err = s.clusters(ctx, n*perHost)
	}
	if err != nil {
		return nil, nil, nil, "", errors.Join(err, s.close())
	}
	return s, hosts, clusters, trace, nil
}

// measure does the same to all hosts at once.
func (s *site) measure(ctx context.Context, r *bench.Run, verb string, hosts []object, clusters []string, trace string, target bench.Target) error {
	done, err := r.Profile(ctx, s.service.Process.Pid)
	if err != nil {
		return err
	}
	before, err := s.counts(ctx)
	if err != nil {
		return err
	}
	used, waited := s.effort()
	took, err := s.verb(ctx, verb, hosts, clusters, trace)
	done()
	if err != nil {
		return err
	}
	after, err := s.counts(ctx)
	r.Figure("operations", float64(len(hosts)), verb+"s", bench.NoTarget)
	r.Latencies(took, target)
	r.Figure("sql_per_op", (after.statements-before.statements)/float64(len(hosts)), "statements, those of polls included", bench.NoTarget)
	s.effortOf(r, used, waited, float64(len(hosts)))
	return err
}

// verb does the same to all hosts at once, and returns the times from each request until its host's agent had new instructions.
func (s *site) verb(ctx context.Context, verb string, hosts []object, clusters []string, trace string) ([]time.Duration, error) {
	instructions, err := tailOf(trace)
	if err != nil {
		return nil, err
	}
	asked := make([]int64, len(hosts))
	errs := make([]error, len(hosts))
	var all sync.WaitGroup
	for i, h := range hosts {
		all.Go(func() {
			asked[i] = time.Now().UnixNano()
			errs[i] = s.call(ctx, http.MethodPost, "/infra-envs/"+s.infraEnv+"/hosts/"+h.ID+"/actions/"+verb, map[string]string{"cluster_id": clusters[i]}, nil)
		})
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	since := make(map[string]int64, len(hosts))
	for i, h := range hosts {
		since[h.ID] = asked[i]
	}
	var took []time.Duration
	first := map[string]time.Duration{}
	return took, await(ctx, time.Minute, func() (string, error) {
		lines, err := instructions.next()
		if err != nil {
			return "", err
		}
		for _, t := range lines {
			asked, wanted := since[t.Host]
			if _, known := first[t.Host]; wanted && !known && t.At > asked && slices.Contains(t.Steps, "inventory") {
				first[t.Host] = time.Duration(t.At - asked)
			}
		}
		took = slices.Collect(maps.Values(first))
		if len(took) < len(hosts) {
			return fmt.Sprintf("%d of %d agents have new instructions", len(took), len(hosts)), nil
		}
		return "", nil
	})
}

// bound checks that each host is in its cluster.
func (s *site) bound(ctx context.Context, r *bench.Run, clusters []string, hosts []object) error {
	now, err := s.hosts(ctx)
	if err != nil {
		return err
	}
	where := map[string]string{}
	for _, h := range now {
		where[h.ID] = h.ClusterID
	}
	wrong := 0
	for i, h := range hosts {
		if where[h.ID] != clusters[i] {
			wrong++
		}
	}
	r.Figure("wrong_cluster", float64(wrong), "hosts", 0)
	r.Asserted("%d hosts are in %d clusters, each in its own", len(hosts), len(clusters))
	if wrong > 0 {
		return fmt.Errorf("%d hosts are in a wrong cluster", wrong)
	}
	return nil
}

// deadHost is one host of many that stops polling.
func deadHost(ctx context.Context, r *bench.Run) (err error) {
	const silence = 90 * time.Second
	s, err := startSite(ctx, siteConfig{arguments: []string{"-disconnect-after=" + silence.String()}})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	n := r.Scaled(10_000)
	if _, _, err := s.fleet(ctx, "a", n-1, "-poll=60s", "-ramp="+ramp.String()); err != nil {
		return err
	}
	trace, dying, err := s.fleet(ctx, "dying", 1)
	if err != nil {
		return err
	}
	if err := s.settled(ctx, n, 5*time.Minute); err != nil {
		return err
	}
	lines, err := read(trace)
	if err != nil || len(lines) == 0 {
		return errors.Join(err, errors.New("the host never got an instruction"))
	}
	kill(dying)
	var h object
	host := "/infra-envs/" + s.infraEnv + "/hosts/" + lines[0].Host
	err = await(ctx, silence+time.Minute, func() (string, error) {
		if err := s.call(ctx, http.MethodGet, host, nil, &h); err != nil || h.Status == "disconnected-unbound" {
			return "", err
		}
		return "the dead host is " + h.Status, nil
	})
	if err != nil {
		return err
	}
	beyond := h.StatusUpdatedAt.Sub(h.CheckedInAt) - silence
	if beyond < -2*time.Second { // the service looks once a second
		return fmt.Errorf("the host counts as dead %s before its time-out", -beyond)
	}
	r.Figure("seconds", max(0, beyond).Seconds(), "s beyond its time-out since the last poll that arrived", 10)
	hosts, err := s.hosts(ctx)
	lost := 0
	for _, h := range hosts {
		if h.Status != "known-unbound" {
			lost++
		}
	}
	if err == nil && lost != 1 {
		err = fmt.Errorf("%d hosts are not known, where one is dead", lost)
	}
	r.Asserted("no other host of %d counts as dead", n)
	return err
}

// restart is a service that is killed and started again among many hosts.
func restart(ctx context.Context, r *bench.Run) (err error) {
	s, err := startSite(ctx, siteConfig{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	n := r.Scaled(10_000)
	if _, _, err := s.fleet(ctx, "a", n, "-poll=60s", "-ramp="+ramp.String()); err != nil {
		return err
	}
	if err := s.settled(ctx, n, 5*time.Minute); err != nil {
		return err
	}
	kill(s.service)
	begin := time.Now()
	if err := s.start(ctx); err != nil {
		return err
	}
	r.Figure("ready_seconds", time.Since(begin).Seconds(), "s", bench.NoTarget)
	if err := s.settled(ctx, n, time.Minute); err != nil {
		return err
	}
	r.Figure("seconds", time.Since(begin).Seconds(), "s", bench.NoTarget)
	r.Asserted("all %d hosts are in the state that they had", n)
	return nil
}
