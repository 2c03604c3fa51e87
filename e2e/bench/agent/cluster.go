// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/muster-io/muster/e2e/bench"
)

// bindInfraEnv makes a cluster, and an infra-env whose hosts belong to it, which takes the place of the site's own.
func (s *site) bindInfraEnv(ctx context.Context) error {
	clusters, err := s.clusters(ctx, 1)
	if err != nil {
		return err
	}
	var env object
	err = s.call(ctx, http.MethodPost, "/infra-envs", map[string]string{"name": "bound", "pull_secret": `{"auths":{}}`, "cluster_id": clusters[0]}, &env) //nolint:gosec // it opens nothing
	s.infraEnv = env.ID
	return err
}

// registerStorm is the hosts of one cluster that register at once, on PostgreSQL.
func registerStorm(ctx context.Context, r *bench.Run) (err error) {
	s, err := startSite(ctx, siteConfig{postgres: true})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	if err := s.bindInfraEnv(ctx); err != nil {
		return err
	}
	n := r.Scaled(100)
	done, err := r.Profile(ctx, s.service.Process.Pid)
	if err != nil {
		return err
	}
	before, err := s.counts(ctx)
	if err != nil {
		return err
	}
	used, waited := s.effort()
	took, err := s.registrations(ctx, n) // one that is refused fails the benchmark
	done()
	if err != nil {
		return err
	}
	after, err := s.counts(ctx)
	if err != nil {
		return err
	}
	r.Figure("operations", float64(n), "registrations", bench.NoTarget)
	r.Latencies(took, 2000)
	r.Figure("errors", after.refusals-before.refusals, "registrations", 0)
	r.Figure("sql_per_op", (after.statements-before.statements)/float64(n), "statements", bench.NoTarget)
	s.effortOf(r, used, waited, float64(n))
	hosts, err := s.hosts(ctx)
	if err == nil && len(hosts) != n {
		err = fmt.Errorf("%d hosts are there, where %d registered", len(hosts), n)
	}
	r.Asserted("%d machines of one cluster registered at once", n)
	return err
}

// connectivity is the hosts of one large cluster that report whether they reach each other, while the agents of all of them wait for instructions.
func connectivity(ctx context.Context, r *bench.Run) (err error) {
	s, err := startSite(ctx, siteConfig{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	if err := s.bindInfraEnv(ctx); err != nil {
		return err
	}
	n := r.Scaled(500)
	if _, _, err := s.fleet(ctx, "a", n, "-ramp=20s"); err != nil {
		return err
	}
	if err := s.inCluster(ctx, n, 5*time.Minute); err != nil {
		return err
	}
	hosts, err := s.hosts(ctx)
	if err != nil {
		return err
	}
	done, err := r.Profile(ctx, s.service.Process.Pid)
	if err != nil {
		return err
	}
	defer done()
	// Each reply loses another peer than the one before; then all are sent once more, and say nothing new.
	for _, round := range []struct {
		name   string
		target bench.Target
	}{{"", 5}, {"repeated_", bench.NoTarget}} {
		used, waited := s.effort()
		took, err := s.report(ctx, hosts)
		if err != nil {
			return err
		}
		usedNow, waitedNow := s.effort()
		operations := float64(len(took))
		r.Figure(round.name+"operations", operations, "replies", bench.NoTarget)
		r.Figure(round.name+"p50_ms", float64(bench.Percentile(took, 0.5).Microseconds())/1000, "ms", bench.NoTarget)
		r.Figure(round.name+"p99_ms", float64(bench.Percentile(took, 0.99).Microseconds())/1000, "ms", bench.NoTarget)
		r.Figure(round.name+"cpu_ms_per_op", float64((usedNow-used).Microseconds())/1000/operations, "ms, with what the agents of all hosts ask meanwhile", round.target)
		r.Figure(round.name+"cpu_wait_ms_per_op", float64((waitedNow-waited).Microseconds())/1000/operations, "ms that its threads waited for a processor", bench.NoTarget)
	}
	return s.lonely(ctx, r, hosts)
}

// inCluster waits until the service has validated n hosts of a cluster.
func (s *site) inCluster(ctx context.Context, n int, limit time.Duration) error {
	return await(ctx, limit, func() (string, error) {
		var there float64
		for _, state := range []string{"known", "insufficient"} {
			some, err := s.count(ctx, "agent_service_hosts", `state="`+state+`"`)
			if err != nil {
				return "", err
			}
			there += some
		}
		if int(there) >= n {
			return "", nil
		}
		return fmt.Sprintf("%.0f of %d hosts are validated", there, n), nil
	})
}

// reporters is how many hosts report at a time.
const reporters = 4

// report sends a reply for each host: that it reaches all of its peers but one.
func (s *site) report(ctx context.Context, hosts []object) ([]time.Duration, error) {
	took, errs := make([]time.Duration, len(hosts)), make([]error, len(hosts))
	var all sync.WaitGroup
	next := make(chan int)
	for range reporters {
		all.Go(func() {
			for i := range next {
				body, err := connectivityReply(hosts, i)
				asked := time.Now()
				if err == nil {
					err = s.call(ctx, http.MethodPost, "/infra-envs/"+s.infraEnv+"/hosts/"+hosts[i].ID+"/instructions", body, nil)
				}
				took[i], errs[i] = time.Since(asked), err
			}
		})
	}
	for i := range hosts {
		next <- i
	}
	close(next)
	all.Wait()
	return took, errors.Join(errs...)
}

// mostPeers is how many others a host is asked to reach at most.
const mostPeers = 256

func connectivityReply(hosts []object, i int) (any, error) {
	var peers []map[string]any
	for j := 1; j < len(hosts) && j <= mostPeers; j++ {
		peers = append(peers, map[string]any{
			"host_id": hosts[(i+j)%len(hosts)].ID, "l3_connectivity": []map[string]any{{"successful": j > 1, "average_rtt_ms": 0.2, "packet_loss_percentage": 0}},
		})
	}
	output, err := json.Marshal(map[string]any{"remote_hosts": peers})
	return map[string]any{"step_type": "connectivity-check", "step_id": "connectivity-check-1", "exit_code": 0, "output": string(output)}, err
}

// lonely checks that a host that reaches no other host fails the validation of the majority group.
func (s *site) lonely(ctx context.Context, r *bench.Run, hosts []object) error {
	lost := make([]map[string]any, 0, len(hosts))
	for _, other := range hosts[1:min(len(hosts), mostPeers+1)] {
		lost = append(lost, map[string]any{"host_id": other.ID, "l3_connectivity": []map[string]any{{"successful": false}}})
	}
	output, err := json.Marshal(map[string]any{"remote_hosts": lost})
	if err != nil {
		return err
	}
	path := "/infra-envs/" + s.infraEnv + "/hosts/" + hosts[0].ID
	body := map[string]any{"step_type": "connectivity-check", "step_id": "connectivity-check-1", "exit_code": 0, "output": string(output)}
	if err := s.call(ctx, http.MethodPost, path+"/instructions", body, nil); err != nil {
		return err
	}
	var h struct {
		Validations string `json:"validations_info"`
	}
	if err := s.call(ctx, http.MethodGet, path, nil, &h); err != nil {
		return err
	}
	var groups map[string][]struct {
		ID     string `json:"id"`
		Status string `json:"status"`
	}
	if err := json.Unmarshal([]byte(h.Validations), &groups); err != nil {
		return fmt.Errorf("reading the validations: %w", err)
	}
	for _, v := range groups["network"] {
		if v.ID == "belongs-to-majority-group" && v.Status == "failure" {
			r.Asserted("a host that reaches none of %d others is validated so at once", len(lost))
			return nil
		}
	}
	return errors.New("a host that reaches no other host belongs to the majority")
}
