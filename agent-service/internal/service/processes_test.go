// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package service_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/muster-io/muster/agent-service/internal/agentproto"
	"github.com/muster-io/muster/agent-service/internal/domain"
	"github.com/muster-io/muster/agent-service/internal/faultinject"
	"github.com/muster-io/muster/agent-service/internal/lifecycle"
	"github.com/muster-io/muster/agent-service/internal/postgrestest"
	"github.com/muster-io/muster/agent-service/internal/service"
	"github.com/muster-io/muster/agent-service/internal/store"
	"github.com/muster-io/muster/agent-service/internal/transaction"
)

// life is all that happens to two hosts. The service that serves it dies, and another one goes on with the same store.
type life struct {
	*testEnv
	// next injects faults into the next process, and injector into this one.
	next     func() *faultinject.Injector
	injector *faultinject.Injector
	// names are what ids are called in the transcript.
	names       map[string]string
	env         string
	blue, green string
	one, two    domain.HostKey
}

func newLife(t *testing.T, db *store.Store, next func() *faultinject.Injector) *life {
	l := &life{testEnv: &testEnv{t: t, store: db, now: time.Now()}, next: next, env: uuid.NewString(), blue: uuid.NewString(), green: uuid.NewString()}
	l.one, l.two = domain.HostKey{InfraEnvID: l.env, HostID: uuid.NewString()}, domain.HostKey{InfraEnvID: l.env, HostID: uuid.NewString()}
	l.names = map[string]string{l.env: "env", l.blue: "blue", l.green: "green", l.one.HostID: "one", l.two.HostID: "two"}
	l.begin()
	return l
}

// begin starts another process.
func (l *life) begin() {
	l.injector = l.next()
	l.Service = service.New(l.injector.Store(l.store), service.Options{
		Now: l.clock, OSImages: []agentproto.OSImage{{Version: "4.18", URL: "https://images.example.com/disk.raw.gz", SHA256: fmt.Sprintf("%064d", 7)}},
	})
	service.Tick(l.t.Context(), l.Service)
}

// until does something again and again, as users and agents do that get no answer, until it is done. There is who looks whether it was done before the
// answer was lost; nil repeats it.
func (l *life) until(do func(ctx context.Context) error, there func(*domain.Host) bool) {
	l.t.Helper()
	for {
		err := do(l.t.Context())
		if !errors.Is(err, faultinject.ErrCrashed) {
			require.NoError(l.t, err)
			return
		}
		l.begin()
		if there == nil {
			continue
		}
		h, err := l.GetHost(l.t.Context(), alice, l.one)
		require.NoError(l.t, err)
		if there(h) {
			return
		}
	}
}

// once is done by a user who looks for what is there before trying again.
func (l *life) once(do func(ctx context.Context) error) {
	l.t.Helper()
	l.until(func(ctx context.Context) error {
		if err := do(ctx); domain.ReasonOf(err) != "AlreadyExists" && domain.KindOf(err) != domain.NotFound {
			return err
		}
		return nil
	}, nil)
}

func (l *life) in(cluster string) func(*domain.Host) bool {
	return func(h *domain.Host) bool { return h.ClusterID == cluster }
}

func (l *life) live() {
	l.once(func(ctx context.Context) error {
		_, err := l.CreateInfraEnv(ctx, alice, domain.NewInfraEnv{ID: l.env, Name: "env", InfraEnvSettings: domain.InfraEnvSettings{PullSecret: `{"auths":{}}`}})
		return err
	})
	for _, id := range []string{l.blue, l.green} {
		l.once(func(ctx context.Context) error {
			_, err := l.CreateCluster(ctx, alice, domain.NewCluster{
				ID: id, Name: l.names[id], ClusterSettings: domain.ClusterSettings{OpenshiftVersion: "4.18", ControlPlaneCount: 1, PullSecret: `{"auths":{"secret":{}}}`},
			})
			return err
		})
	}
	for _, key := range []domain.HostKey{l.one, l.two} {
		l.boot(key, "1")
	}
	l.until(func(ctx context.Context) error { _, err := l.BindHost(ctx, alice, l.one, l.blue, false); return err }, l.in(l.blue))
	l.until(func(ctx context.Context) error { _, err := l.MoveHost(ctx, alice, l.one, l.green); return err }, l.in(l.green))
	l.until(func(ctx context.Context) error { _, err := l.UnbindHost(ctx, alice, l.one); return err }, l.in(""))
	l.until(func(ctx context.Context) error { _, err := l.BindHost(ctx, alice, l.one, l.green, false); return err }, l.in(l.green))
	l.until(func(ctx context.Context) error { _, err := l.BindHost(ctx, alice, l.two, l.blue, true); return err }, nil)
	l.until(func(ctx context.Context) error {
		_, err := l.UpdateHost(ctx, alice, l.two, func(s *domain.HostSettings) error { s.Role = "master"; return nil })
		return err
	}, nil)
	l.install()
}

// boot is what the agent of a machine does that was just started.
func (l *life) boot(key domain.HostKey, boot string) {
	l.until(func(ctx context.Context) error {
		_, err := l.RegisterHost(ctx, l.env, domain.NewHost{HostID: key.HostID, AgentVersion: "test", BootID: boot})
		return err
	}, nil)
	l.report(key, agentproto.StepInventory, machine(l.names[key.HostID]))
}

func (l *life) report(key domain.HostKey, step agentproto.StepType, output string) {
	l.until(func(ctx context.Context) error {
		return l.ReportStep(ctx, key, agentproto.StepReply{Type: step, Output: output})
	}, nil)
}

func (l *life) install() {
	l.until(func(ctx context.Context) error { _, err := l.InstallCluster(ctx, alice, l.green); return err },
		func(h *domain.Host) bool { return h.State != lifecycle.Known })
	l.report(l.one, agentproto.StepDiskSpeed, `{"io_sync_duration":3}`)
	l.report(l.one, agentproto.StepImageAvailability, `{"images":[]}`)
	require.Contains(l.t, l.steps(l.one), agentproto.StepInstall)
	for _, stage := range []lifecycle.Stage{
		lifecycle.StageStarting, lifecycle.StageInstalling, lifecycle.StageWriting, lifecycle.StageRebooting, lifecycle.StageConfiguring, lifecycle.StageJoined, lifecycle.StageDone,
	} {
		l.until(func(ctx context.Context) error {
			_, err := l.ReportProgress(ctx, l.one, domain.ProgressReport{Stage: stage})
			return err
		}, nil)
	}
	l.until(func(ctx context.Context) error {
		_, err := l.CompleteCluster(ctx, alice, l.green, "kubeconfig")
		return err
	}, nil)
}

// end deletes everything.
func (l *life) end() {
	l.once(func(ctx context.Context) error { return l.DeleteCluster(ctx, alice, l.green, false) })
	l.boot(l.one, "2")
	l.once(func(ctx context.Context) error { return l.DeleteHost(ctx, alice, l.one) })
	l.once(func(ctx context.Context) error { return l.DeleteInfraEnv(ctx, alice, l.env, true) })
	l.once(func(ctx context.Context) error { return l.DeleteCluster(ctx, alice, l.blue, false) })
}

// transcript is what is stored of a life: hosts, clusters, and the sum of each event.
func (l *life) transcript() []string {
	l.t.Helper()
	var lines []string
	require.NoError(l.t, l.store.View(l.t.Context(), func(ctx context.Context, r transaction.Reader) error {
		hosts, err := r.Hosts(ctx, domain.Scope{Principal: admin}, domain.HostFilter{InfraEnvID: l.env})
		require.NoError(l.t, err)
		for _, h := range hosts.Items {
			lines = append(lines, fmt.Sprintln("host", h.HostID, h.State, h.ClusterID, h.Role, h.Bootstrap, h.Progress.Stage, h.Summary.Hostname, h.PreviousCluster))
		}
		for _, id := range []string{l.blue, l.green} {
			c, err := r.Cluster(ctx, id)
			require.NoError(l.t, err)
			if c != nil {
				lines = append(lines, fmt.Sprintln("cluster", id, c.Status, c.HostCount, c.ReadyHostCount, c.InstalledHostCount, c.Kubeconfig))
			}
		}
		ofEnv, err := r.Events(ctx, domain.EventFilter{InfraEnvID: l.env, Page: domain.Page{Limit: 1000}})
		require.NoError(l.t, err)
		events := ofEnv.Items
		for _, id := range []string{l.blue, l.green} {
			ofCluster, err := r.Events(ctx, domain.EventFilter{ClusterID: id, Page: domain.Page{Limit: 1000}})
			require.NoError(l.t, err)
			events = append(events, ofCluster.Items...)
		}
		for _, e := range events {
			if e.Name == "host_registration_succeeded" {
				e.Count = 1 // an agent that got no answer registers again
			}
			lines = append(lines, fmt.Sprintln("event", e.Name, e.HostID, e.ClusterID, e.Message, e.Count))
		}
		return nil
	}))
	for id, name := range l.names {
		for i := range lines {
			lines[i] = strings.ReplaceAll(lines[i], id, name)
		}
	}
	return lines
}

// TestADeathAtEveryTransaction kills the service at each transaction of a life, before its commit and after it, when no caller has the answer. The caller asks
// again, and in the end everything is as in a life without a death: hosts, clusters, and what was told of them.
func TestADeathAtEveryTransaction(t *testing.T) {
	t.Parallel()
	for name, address := range map[string]func() string{
		"SQLite":     func() string { return filepath.Join(t.TempDir(), "agents.db") },
		"PostgreSQL": func() string { return postgrestest.Start(t).URL },
	} {
		t.Run(name, func(t *testing.T) {
			db, err := store.Open(t.Context(), address())
			require.NoError(t, err)
			defer db.Close() //nolint:errcheck // the lives are over
			whole := newLife(t, db, faultinject.Never)
			whole.live()
			lived := whole.transcript()
			whole.end()
			ended := whole.transcript()
			acts := whole.injector.Writes()
			for _, period := range []int{2, 3} {
				for first := 1; first <= period; first++ {
					processes := &faultinject.Sequence{First: first, Period: period}
					l := newLife(t, db, processes.Next)
					l.live()
					require.ElementsMatch(t, lived, l.transcript(), "from act %d, every %d", first, period)
					l.end()
					require.ElementsMatch(t, ended, l.transcript(), "from act %d, every %d, at the end", first, period)
					assert.GreaterOrEqual(t, processes.Crashes(), 2*(acts/period-1), "each dies early and late")
				}
			}
			t.Logf("%d transactions", acts)
		})
	}
}
