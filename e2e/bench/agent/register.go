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
	"sigs.k8s.io/controller-runtime/pkg/client"

	agentv1 "github.com/muster-io/muster/apis/agentinstall/v1beta1"
	"github.com/muster-io/muster/e2e/bench"
)

// register is many first registrations at once, until each host has its Agent.
func register(ctx context.Context, r *bench.Run) (err error) {
	s, err := startSite(ctx, siteConfig{kube: true})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	n := r.Scaled(1000)
	done, err := r.Profile(ctx, s.service.Process.Pid)
	if err != nil {
		return err
	}
	before, err := s.counts(ctx)
	if err != nil {
		return err
	}
	begin := time.Now()
	took, err := s.registrations(ctx, n)
	if err != nil {
		return err
	}
	// All Agents are there first, and say later how their hosts are.
	made, err := s.agentsWritten(ctx, bench.Kind{Verb: "create", Resource: agents}, before, n, begin)
	if err != nil {
		return err
	}
	reported, err := s.agentsWritten(ctx, bench.Kind{Verb: "patch", Resource: agents + "/status"}, before, n, begin)
	if err != nil {
		return err
	}
	done()
	if err := s.hub.quiet(ctx, 3*time.Second, 5*time.Minute); err != nil {
		return err
	}
	after, err := s.counts(ctx)
	if err != nil {
		return err
	}
	there, err := s.hub.agents(ctx)
	if err == nil && there != n {
		err = fmt.Errorf("%d hosts have %d Agents", n, there)
	}
	if err != nil {
		return err
	}
	requests := after.requests.Since(before.requests)
	r.Figure("operations", float64(n), "registrations", bench.NoTarget)
	r.Latencies(took, bench.NoTarget)
	r.Figure("errors", after.refusals-before.refusals, "registrations", 0)
	r.Figure("sql_per_op", (after.statements-before.statements)/float64(n), "statements", bench.NoTarget)
	r.Figure("writes_per_op", float64(bench.Total(requests.Writes(), nil))/float64(n), "writes", bench.NoTarget)
	r.Figure("requests_per_op", float64(bench.Total(requests.All(), nil))/float64(n), "requests", bench.NoTarget)
	r.Note("requests to the Kubernetes API: %s", bench.Describe(requests.All()))
	r.Asserted("%d machines registered and have an Agent each", n)
	kill(s.service)
	return s.bareAgents(ctx, r, n, made, reported)
}

// registrations are n at once; the times are those of their answers.
func (s *site) registrations(ctx context.Context, n int) ([]time.Duration, error) {
	took, errs := make([]time.Duration, n), make([]error, n)
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
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("registrations were refused: %w", err)
	}
	return took, nil
}

const agents = "agents"

// writtenInterval is how exact agentsWritten is: a tenth of a second would be a part of what is measured.
const writtenInterval = 10 * time.Millisecond

// agentsWritten waits until the service has done n writes of a kind, and returns how long that took since begin.
func (s *site) agentsWritten(ctx context.Context, kind bench.Kind, before counts, n int, begin time.Time) (took time.Duration, err error) {
	var next time.Time
	return took, awaitEach(ctx, writtenInterval, 5*time.Minute, func() (string, error) {
		if time.Now().Before(next) {
			return "the Agents are being written", nil
		}
		requests, err := s.requests(ctx)
		if err != nil {
			return "", err
		}
		written := requests.Since(before.requests).Writes()[kind]
		if took = time.Since(begin); written < n {
			// A list is expensive for the service: the next one follows when half of what is missing may be there.
			next = time.Now().Add(min(took*time.Duration(n-written)/time.Duration(2*max(written, 1)), time.Second))
			return fmt.Sprintf("%d of %d Agents are there: %s", written, n, bench.Describe(requests.All())), nil
		}
		return "", nil
	})
}

// bareAgents makes as many Agents with a plain client, and then states of them what the service does.
func (s *site) bareAgents(ctx context.Context, r *bench.Run, n int, made, reported time.Duration) error {
	counter := bench.NewCounter()
	config := rest.CopyConfig(s.hub.admin)
	config.Wrap(counter.Wrap)
	plain, err := clientOf(config)
	if err != nil {
		return err
	}
	create, state := bench.Kind{Verb: "create", Resource: agents}, bench.Kind{Verb: "patch", Resource: agents + "/status"}
	list := &agentv1.AgentList{}
	if err := plain.List(ctx, list, client.InNamespace(metav1.NamespaceDefault)); err != nil {
		return err
	}
	bare := bench.Bare{Writers: 10, Items: n, Order: []bench.Kind{create, state}}
	created := make([]*agentv1.Agent, n)
	bare.Write = func(ctx context.Context, kind bench.Kind, item, _ int) error {
		like := list.Items[item].DeepCopy()
		if kind == create {
			created[item] = &agentv1.Agent{ObjectMeta: metav1.ObjectMeta{
				Name: uuid.NewString(), Namespace: like.Namespace, Labels: like.Labels, Finalizers: like.Finalizers, OwnerReferences: like.OwnerReferences,
			}, Spec: like.Spec}
			return plain.Create(ctx, created[item])
		}
		before := created[item].DeepCopy()
		created[item].Status = like.Status
		return plain.Status().Patch(ctx, created[item], client.MergeFrom(before))
	}
	bare.Writes = map[bench.Kind]int{create: n, state: n}
	took, err := bare.Run(ctx)
	if err != nil {
		return err
	}
	r.Figure("ratio_to_all_writes", reported.Seconds()/took.Seconds(), "ratio, states of Agents included", bench.NoTarget)
	bare.Writes = map[bench.Kind]int{create: n}
	return r.RatioToBare(ctx, made, bare, counter, 1.5)
}
