// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/muster-io/muster/e2e/bench"
)

// Benchmarks returns all benchmarks of agent-service.
func Benchmarks() []bench.Benchmark {
	return []bench.Benchmark{
		{Name: "agent.heartbeat_10k_sqlite", Play: heartbeat(wish{kube: true})},
		{Name: "agent.heartbeat_10k_postgres", Play: heartbeat(wish{kube: true, postgres: true})},
		{Name: "agent.bind_1000", Play: bind},
		{Name: "agent.move_200", Play: move},
		{Name: "agent.register_1000", Play: register},
		{Name: "agent.dead_host_10k", Play: deadHost},
		{Name: "agent.restart_10k", Play: restart},
		{Name: "agent.iso_200", Play: iso},
	}
}

// heartbeat is many hosts that poll once a minute.
func heartbeat(with wish) func(context.Context, *bench.Run) error {
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
	trace, _, err := s.fleet(ctx, "a", n, "-poll=60s", "-ramp=55s")
	if err != nil {
		return err
	}
	if _, err := s.settled(ctx, n, 10*time.Minute); err != nil {
		return err
	}
	// The second round of polls brings no news, and Agents are as their hosts.
	begin := time.Now().Add(70 * time.Second)
	if err := s.hub.quiet(ctx, 15*time.Second, 15*time.Minute); err != nil {
		return err
	}
	if begin.Before(time.Now()) {
		begin = time.Now()
	}
	if err := sleepUntil(ctx, begin); err != nil {
		return err
	}
	before, err := s.counts(ctx)
	if err != nil {
		return err
	}
	if err := sleepUntil(ctx, begin.Add(time.Duration(max(60, r.Scaled(150)))*time.Second)); err != nil {
		return err
	}
	after, err := s.counts(ctx)
	if err != nil {
		return err
	}
	all, err := read(trace)
	if err != nil {
		return err
	}
	var took []time.Duration
	for _, t := range all {
		if t.At > begin.UnixNano() {
			took = append(took, t.Took)
		}
	}
	full, err := s.rss()
	r.Latencies(took, 50)
	r.Figure("sql_per_op", (after.statements-before.statements)/(after.polls-before.polls), "statements", 0.1)
	r.Figure("kube_writes", after.written-before.written, "writes", 0)
	r.Figure("rss_per_item_kb", (full-empty)/float64(n), "KiB", bench.NoTarget)
	r.Asserted("%.0f polls of %d hosts were answered; every host stayed connected; each has an Agent", after.polls-before.polls, n)
	if len(took) < n {
		return errors.Join(err, fmt.Errorf("only %d polls of %d hosts were answered", len(took), n))
	}
	_, settled := s.settled(ctx, n, time.Second)
	agents, counted := s.hub.agents(ctx)
	if agents != n {
		counted = errors.Join(counted, fmt.Errorf("%d hosts have %d Agents", n, agents))
	}
	return errors.Join(err, settled, counted)
}

// counts are counters of the service and, for writes to its kinds, of the API server.
type counts struct{ polls, statements, written float64 }

func (s *site) counts(ctx context.Context) (c counts, err error) {
	if c.polls, err = s.count(ctx, "agent_service_polls_total"); err != nil {
		return c, err
	}
	if c.statements, err = s.count(ctx, "agent_service_sql_statements_total"); err != nil {
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
	took, err := s.verb(ctx, "bind", hosts, clusters, trace)
	if err != nil {
		return err
	}
	r.Latencies(took, 1000)
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
	took, err := s.verb(ctx, "move", hosts, clusters[n:], trace)
	if err != nil {
		return err
	}
	r.Latencies(took, 2000)
	return s.bound(ctx, r, clusters[n:], hosts)
}

// startBound is a site with n free hosts on held polls, and perHost clusters for each.
func startBound(ctx context.Context, n, perHost int) (*site, []object, []string, string, error) {
	s, err := startSite(ctx, wish{})
	if err != nil {
		return nil, nil, nil, "", err
	}
	trace, _, err := s.fleet(ctx, "a", n, "-ramp=5s")
	var hosts []object
	var clusters []string
	if err == nil {
		hosts, err = s.settled(ctx, n, 2*time.Minute)
	}
	if err == nil {
		clusters, err = s.clusters(ctx, n*perHost)
	}
	if err != nil {
		return nil, nil, nil, "", errors.Join(err, s.close())
	}
	return s, hosts, clusters, trace, nil
}

// verb does the same to all hosts at once, and returns the times from each request until its host's agent had new instructions.
func (s *site) verb(ctx context.Context, verb string, hosts []object, clusters []string, trace string) ([]time.Duration, error) {
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
	var took []time.Duration
	return took, await(ctx, time.Minute, func() (string, error) {
		lines, err := read(trace)
		if err != nil {
			return "", err
		}
		answered := map[string]int64{}
		for i, h := range hosts {
			at := slices.IndexFunc(lines, func(t told) bool { return t.Host == h.ID && t.At > asked[i] && slices.Contains(t.Steps, "inventory") })
			if at >= 0 {
				answered[h.ID] = lines[at].At - asked[i]
			}
		}
		took = nil
		for _, t := range answered {
			took = append(took, time.Duration(t))
		}
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
	s, err := startSite(ctx, wish{arguments: []string{"-disconnect-after=" + silence.String()}})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	n := r.Scaled(10_000)
	if _, _, err := s.fleet(ctx, "a", n-1, "-poll=60s", "-ramp=55s"); err != nil {
		return err
	}
	trace, dying, err := s.fleet(ctx, "dying", 1)
	if err != nil {
		return err
	}
	if _, err := s.settled(ctx, n, 5*time.Minute); err != nil {
		return err
	}
	lines, err := read(trace)
	if err != nil || len(lines) == 0 {
		return errors.Join(err, errors.New("the host was never told anything"))
	}
	kill(dying)
	dead, host := time.Now(), "/infra-envs/"+s.infraEnv+"/hosts/"+lines[0].Host
	err = await(ctx, silence+time.Minute, func() (string, error) {
		var h object
		if err := s.call(ctx, http.MethodGet, host, nil, &h); err != nil || h.Status == "disconnected-unbound" {
			return "", err
		}
		return "the dead host is " + h.Status, nil
	})
	if err != nil {
		return err
	}
	// The host was last heard of when its held poll began or was given up, which is not later than its death.
	r.Figure("seconds", max(0, time.Since(dead)-silence).Seconds(), "s beyond its time-out", 10)
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
	s, err := startSite(ctx, wish{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	n := r.Scaled(10_000)
	if _, _, err := s.fleet(ctx, "a", n, "-poll=60s", "-ramp=55s"); err != nil {
		return err
	}
	if _, err := s.settled(ctx, n, 5*time.Minute); err != nil {
		return err
	}
	kill(s.service)
	begin := time.Now()
	if err := s.start(ctx); err != nil {
		return err
	}
	r.Figure("ready_seconds", time.Since(begin).Seconds(), "s", bench.NoTarget)
	if _, err := s.settled(ctx, n, time.Minute); err != nil {
		return err
	}
	r.Figure("seconds", time.Since(begin).Seconds(), "s", bench.NoTarget)
	r.Asserted("all %d hosts are in the state that they had", n)
	return nil
}
