// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/google/uuid"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	agentv1 "github.com/muster-io/muster/apis/agentinstall/v1beta1"
	"github.com/muster-io/muster/e2e/bench"
)

// register is many first registrations at once, until each host has its Agent.
func register(ctx context.Context, r *bench.Run) (err error) {
	s, err := startSite(ctx, wish{kube: true})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	n := r.Scaled(1000)
	took, errs := make([]time.Duration, n), make([]error, n)
	begin := time.Now()
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			asked := time.Now()
			body := map[string]string{"host_id": uuid.NewString(), "boot_id": "1", "discovery_agent_version": "bench"}
			errs[i] = s.call(ctx, http.MethodPost, "/infra-envs/"+s.infraEnv+"/hosts", body, nil)
			took[i] = time.Since(asked)
		})
	}
	all.Wait()
	failed := 0
	for _, err := range errs {
		if err != nil {
			failed++
		}
	}
	r.Latencies(took, bench.NoTarget)
	r.Figure("errors", float64(failed), "registrations", 0)
	if failed > 0 {
		return fmt.Errorf("%d registrations were refused, one of them: %w", failed, errors.Join(errs...))
	}
	err = await(ctx, 5*time.Minute, func() (string, error) {
		agents, err := s.hub.agents(ctx)
		if err != nil || agents == n {
			return "", err
		}
		return fmt.Sprintf("%d of %d Agents are there", agents, n), nil
	})
	if err != nil {
		return err
	}
	seconds := time.Since(begin)
	r.Asserted("%d machines registered and have an Agent each", n)
	kill(s.service)
	return s.bareAgents(ctx, r, n, seconds)
}

// bareAgents creates as many Agents with a plain client.
func (s *site) bareAgents(ctx context.Context, r *bench.Run, n int, workload time.Duration) error {
	counter := bench.NewCounter()
	config := rest.CopyConfig(s.hub.admin)
	config.Wrap(counter.Wrap)
	plain, err := clientOf(config)
	if err != nil {
		return err
	}
	create := bench.Kind{Verb: "create", Resource: "agents"}
	return r.RatioToBare(ctx, workload, bench.Bare{
		Writers: 10, Items: n, Writes: map[bench.Kind]int{create: n}, Order: []bench.Kind{create},
		Write: func(ctx context.Context, _ bench.Kind, _, _ int) error {
			agent := &agentv1.Agent{ObjectMeta: metav1.ObjectMeta{Name: uuid.NewString(), Namespace: metav1.NamespaceDefault}}
			agent.Spec.Role = "auto-assign"
			return plain.Create(ctx, agent)
		},
	}, counter, bench.NoTarget)
}
