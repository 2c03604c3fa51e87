// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package service

import (
	"context"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/muster-io/muster/agent-service/internal/agentproto"
	"github.com/muster-io/muster/agent-service/internal/clusterfiles"
	"github.com/muster-io/muster/agent-service/internal/domain"
	"github.com/muster-io/muster/agent-service/internal/feed"
	"github.com/muster-io/muster/agent-service/internal/hostcache"
	"github.com/muster-io/muster/agent-service/internal/hostsync"
	"github.com/muster-io/muster/agent-service/internal/join"
	"github.com/muster-io/muster/agent-service/internal/resident"
	"github.com/muster-io/muster/agent-service/internal/transaction"
	"github.com/muster-io/muster/agent-service/internal/validate"
)

// Options of the service. Empty fields have the documented default.
type Options struct {
	// DisconnectAfter is how long an agent may be silent. Default 3 minutes.
	DisconnectAfter time.Duration
	// PollInterval is how often steps that look at a machine are asked for again. Default 60 s.
	PollInterval time.Duration
	// EventRetention is how long events are kept after they occurred last, 0 for ever.
	EventRetention time.Duration
	// SaveInterval is how often heartbeats are saved. Default 10 s.
	SaveInterval time.Duration
	// OSImages are what agents write, by version and architecture.
	OSImages []agentproto.OSImage
	// RegistryImages are container images that a host must be able to pull before it is installed, none by default.
	RegistryImages []string
	// InstallerImage is the container image that agents of assisted-service run to install, with their flags; they install nothing without one.
	InstallerImage string
	Minimums       validate.Minimums
	// BaseURL is how installed systems reach this service, without a slash at the end.
	BaseURL string
	// Authorities are PEM certificates that installed systems trust this service by, beside those that they know.
	Authorities string
	// AgentVersion is the version of the agents that this service has, and AgentSum the checksum of the one for an architecture: empty where there is none.
	AgentVersion string
	AgentSum     func(architecture string) (string, error)
	// HostToken makes a token for the installed system of a host, nil for none.
	HostToken func(ctx context.Context, h *domain.Host) (string, error)
	// Join is nil without custom resources. So is Rejoin, for hosts whose kubelet lost its certificate. Join notes the Node that the host becomes (NoteNode) before it makes a token for it.
	Join, Rejoin Join
	// RestoreTime is how long after a start InfraEnvs may come back that the service lost with its data, zero where nothing restores them. Their machines are asked to try again
	// meanwhile: agents of assisted-service wait for ever after 401.
	RestoreTime time.Duration
	// BootArtifacts are what an installed system of an InfraEnv restarts into to be free again; nil where there are no discovery images.
	BootArtifacts func(ctx context.Context, e *domain.InfraEnv) (agentproto.BootArtifactsArgs, error)
	// CheckImage says whether there can be a discovery image of an InfraEnv, nil where that is not known.
	CheckImage func(e *domain.InfraEnv) error
	// Now is the clock. Its readings are monotonic.
	Now func() time.Time
	Log *zap.Logger
}

// Join returns what a host joins its cluster with as a node, nil where the cluster takes no nodes.
type Join func(ctx context.Context, h *domain.Host, c *domain.Cluster) (*join.Values, error)

// Service does what users, machines and controllers ask for. Refusals are *domain.Error. All methods are safe for concurrent use, and none blocks longer than a
// transaction, but for NextInstructions.
//
// The owner of an InfraEnv owns its hosts: binds, moves and deletes them. The creator of the cluster that a host is in uses it: sees it, says how it is used, installs and
// resets it. Both free it. Neither sees what the other says of it; Conflict HostOfAnother and HostUsedByAnother to the other one.
//
// REST has checked the token of a machine: that it is one of the InfraEnv, and of the host where the token is narrowed to one.
//
// Its parts, by what is asked about, share nothing but core; Service itself looks after all hosts while it runs.
type Service struct {
	*core
	InfraEnvs
	Hosts
	Clusters
	clusterfiles.Files
	Machines

	// savedAt is when polls were saved last, and prunedAt when old events were deleted last.
	savedAt, prunedAt time.Duration
	// pollsRead is the mark of the polls that were read last.
	pollsRead int64
}

// New makes a service on a store. It answers at once; Run does what must be done in the background.
func New(store transaction.Store, o Options) *Service {
	set(&o.DisconnectAfter, 3*time.Minute)
	set(&o.PollInterval, time.Minute)
	set(&o.SaveInterval, 10*time.Second)
	if o.Minimums == nil {
		o.Minimums = validate.DefaultMinimums
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.CheckImage == nil {
		o.CheckImage = func(*domain.InfraEnv) error { return nil }
	}
	if o.AgentSum == nil {
		o.AgentSum = func(string) (string, error) { return "", nil }
	}
	if o.Log == nil {
		o.Log = zap.NewNop()
	}
	c := &core{Options: o, stopping: make(chan struct{})}
	s := &Service{core: c, InfraEnvs: InfraEnvs{c}, Hosts: Hosts{c}, Clusters: Clusters{c}, Machines: Machines{c}}
	now := func() time.Time { return s.Now() }
	clock := hostcache.NewUpClock(o.Now())
	s.disconnected.Store(store.Shared())
	s.engine = &transaction.Engine{
		Store: store, Memory: c, Hosts: hostcache.New(clock, now, s.DisconnectAfter), Clock: clock,
		InfraEnvs: hostcache.NewRecent[domain.InfraEnv](&s.disconnected), Clusters: hostcache.NewRecent[domain.Cluster](&s.disconnected),
		PollInterval: s.PollInterval, Rules: s.rules, Now: now, Noted: s.noted,
	}
	s.Files, s.memory = clusterfiles.New(s.engine), hostsync.New(s.engine, &s.disconnected)
	s.Systems = resident.New(s.engine, s.memory, o.Rejoin, o.Log)
	return s
}

func set(value *time.Duration, fallback time.Duration) {
	if *value == 0 {
		*value = fallback
	}
}

// Subscribe begins to collect changes, of all replicas. Repeats are folded, nothing is lost, and no subscriber delays another.
func (s *Service) Subscribe() *feed.Subscription { return s.engine.Feed.Subscribe() }

// Stopping is closed when Run ends: what goes on for long ends then.
func (s *Service) Stopping() <-chan struct{} { return s.stopping }

// Ready is nil when the service can answer: its store is reachable and what it keeps in memory is loaded.
func (s *Service) Ready(ctx context.Context) error {
	if err := s.engine.Store.Ping(ctx); err != nil {
		return err
	}
	if !s.memory.Loaded() {
		return domain.Refuse(domain.Unavailable, "Loading", "the hosts are being loaded")
	}
	return nil
}

// Run loads what is kept in memory, and until ctx ends saves heartbeats, sees dead hosts and time-outs, and listens to
// other replicas. At the end held polls are answered and heartbeats saved once more. It is called once.
func (s *Service) Run(ctx context.Context) error {
	defer close(s.stopping)
	var wait sync.WaitGroup
	wait.Go(func() {
		if err := s.engine.Store.Listen(ctx, s.notified, s.disconnect); err != nil {
			s.Log.Error("stopped listening to other replicas", zap.Error(err))
		}
	})
	ticker := time.NewTicker(tickInterval)
	defer ticker.Stop()
	for ctx.Err() == nil {
		s.tick(ctx)
		select {
		case <-ctx.Done():
		case <-ticker.C:
		}
	}
	wait.Wait()
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	return s.savePolls(last)
}

// disconnect is called again and again while changes of other replicas are not known.
func (s *Service) disconnect() {
	if !s.disconnected.Swap(true) {
		s.Log.Warn("lost the notifications of other replicas, reads from the database what they may change")
	}
}

// notified takes changes that other replicas committed.
func (s *Service) notified(changes []domain.Change) {
	for _, c := range changes {
		switch c.Kind {
		case domain.HostChanged:
			if c.Quiet {
				s.engine.Hosts.Silence(c.Host)
			}
			if c.Gone {
				s.engine.Hosts.Remove(c.Host)
			}
			s.engine.Hosts.MarkStale(c.Host)
		case domain.InfraEnvChanged:
			s.engine.InfraEnvs.Forget(c.ID)
		case domain.ClusterChanged:
			s.engine.Clusters.Forget(c.ID)
			s.engine.Reviews.Forget(c.ID)
		case domain.EventAdded:
		case domain.EverythingChanged:
			s.memory.Invalidate() // the next tick loads again
			s.engine.InfraEnvs.Forget("")
			s.engine.Clusters.Forget("")
			s.disconnected.Store(false)
		}
	}
	s.engine.Feed.Publish(changes...)
}
