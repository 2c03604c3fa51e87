// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package service

import (
	"cmp"
	"context"
	"hash/maphash"
	"reflect"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/muster-io/muster/agent-service/internal/agentproto"
	"github.com/muster-io/muster/agent-service/internal/domain"
	"github.com/muster-io/muster/agent-service/internal/hardware"
	"github.com/muster-io/muster/agent-service/internal/hostcache"
	"github.com/muster-io/muster/agent-service/internal/hostplan"
	"github.com/muster-io/muster/agent-service/internal/lifecycle"
	"github.com/muster-io/muster/agent-service/internal/transaction"
)

// ofResident are the steps of an installed system's agent.
var ofResident = []agentproto.StepType{agentproto.StepInventory, agentproto.StepBootArtifacts, agentproto.StepRebootForReclaim, agentproto.StepJoinCluster}

// instruct says what the agent has to do, of some steps or, with nil, of all; due is true where it must know now.
func (s *Machines) instruct(ctx context.Context, e *hostcache.Entry, key domain.HostKey, of []agentproto.StepType) (answer Instructions, due bool, err error) {
	h, types, news := e.Due(
		func(h *domain.Host) (string, []agentproto.StepType) {
			return hostplan.Situation(h), hostplan.Asked[h.State]
		},
		func(h *domain.Host, t agentproto.StepType) time.Duration {
			return hostplan.Period(h, t) * s.PollInterval
		},
	)
	answer = Instructions{NextSeconds: 1, Revision: h.Revision}
	var made []agentproto.StepType
	for _, t := range types {
		if of != nil && !slices.Contains(of, t) || of == nil && t == agentproto.StepJoinCluster { // only its machine asks for the token of a node
			continue
		}
		arguments, wanted, err := s.arguments(ctx, h, t)
		if err != nil {
			return answer, false, err
		}
		made = append(made, t)
		if wanted {
			answer.Steps = append(answer.Steps, agentproto.Step{Type: t, ID: hostplan.StepID(key, t, hostplan.About(h, t)), Args: arguments})
		}
	}
	if !e.Asked(h, hostplan.Situation(h), made) {
		return answer, false, nil // it changed meanwhile: look again rather than tell what is past
	}
	return answer, news || len(answer.Steps) > 0, nil
}

// artifacts are what a host restarts into. They may be away for a while: the host is asked again.
func (s *Machines) artifacts(ctx context.Context, h *domain.Host) (*agentproto.BootArtifactsArgs, error) {
	if s.BootArtifacts == nil || !h.Release.Left() {
		return nil, nil
	}
	e, err := s.knownInfraEnv(ctx, h.InfraEnvID)
	if err != nil {
		return nil, err
	}
	found, err := s.BootArtifacts(ctx, e)
	if err != nil {
		s.Log.Warn("a released machine cannot restart into its discovery image at the moment", zap.Stringer("host", h.HostKey), zap.Error(err))
		return nil, nil
	}
	return &found, nil
}

// arguments are those of a step; wanted is false where it has nothing to look at.
func (s *Machines) arguments(ctx context.Context, h *domain.Host, t agentproto.StepType) (arguments []string, wanted bool, err error) {
	rules, known := s.rules(), hostplan.Known{}
	switch {
	case t == agentproto.StepNTP:
		known.InfraEnv, err = s.knownInfraEnv(ctx, h.InfraEnvID)
	case t == agentproto.StepBootArtifacts, t == agentproto.StepRebootForReclaim:
		known.Artifacts, err = s.artifacts(ctx, h)
	case t == agentproto.StepJoinCluster:
		known.Kubeconfig = s.Kubeconfig(ctx, h, s.knownCluster)
	case t == agentproto.StepConnectivity:
		known.Members = s.engine.Hosts.OfCluster(h.ClusterID)
	case t == agentproto.StepUpgradeAgent && rules.Outdated(h):
		known.AgentSum, err = s.AgentSum(hostplan.Architecture(h))
	case hostplan.NeedsCluster(h, t):
		if known.Cluster, err = s.knownCluster(ctx, h.ClusterID); err != nil {
			break
		}
		if t == agentproto.StepLogsGather {
			known.Members = s.engine.Hosts.OfCluster(h.ClusterID)
		}
		if t == agentproto.StepInstall && !h.Assisted() {
			known.NetworkConfig, err = s.networkConfig(ctx, h, known.Cluster)
		}
	}
	if err != nil {
		return nil, false, err
	}
	return rules.Arguments(h, t, known)
}

// ReportStep takes the reply to a step. Replies to steps that are no longer asked for are taken and change nothing.
func (s *Machines) ReportStep(ctx context.Context, key domain.HostKey, reply agentproto.StepReply) error {
	e, err := s.memory.Entry(ctx, key)
	if err != nil {
		return err
	}
	e.Touch()
	if len(reply.Output) > hardware.MaxReadBytes {
		return domain.Refuse(domain.Invalid, "ReplyTooLarge", "a reply has at most %d bytes", hardware.MaxReadBytes)
	}
	sum := sumOf(reply)
	h := e.Host()
	if hostplan.IsOther(reply, h) {
		e.AskAgainFor(reply.Type) // the agent was at this one when it got the next
		return nil
	}
	same := e.Replied(reply.Type, sum) && h.MediaConnected && h.Twin == "" // a good reply after a bad one says that the medium is back
	if same && reply.Type != agentproto.StepInstall {
		return nil
	}
	if err := s.take(ctx, h, key, reply); err != nil {
		return err
	}
	// An inventory that was forgotten meanwhile is to be taken again.
	if reply.Type == agentproto.StepInventory || reply.Type == agentproto.StepNTP {
		e.KeepReply(reply.Type, sum)
	}
	return nil
}

// replySeed is of the sums of replies, which stay in memory.
var replySeed = maphash.MakeSeed()

// sumOf is different for different replies, without a copy of them.
func sumOf(r agentproto.StepReply) uint64 {
	return maphash.Comparable(replySeed, struct {
		exitCode   int
		output, id string
	}{r.ExitCode, r.Output, r.ID})
}

// take keeps what a reply says.
func (s *Machines) take(ctx context.Context, h *domain.Host, key domain.HostKey, reply agentproto.StepReply) error {
	if hostplan.AlreadyRuns(reply, h) {
		return nil
	}
	if reply.ExitCode == agentproto.MediaLost {
		return s.learn(ctx, key, func(ctx context.Context, w *transaction.Work, h *domain.Host) error {
			h.MediaConnected = false
			w.Tell(h, h.ClusterID, domain.Failure, "host_media_disconnected", h.ClusterID == "", "Host %s: unable to read from the discovery media", h.Label())
			return w.Act(ctx, h, lifecycle.LoseMedia, nil)
		})
	}
	switch reply.Type {
	case agentproto.StepInventory:
		return s.takeInventory(ctx, h, key, reply)
	case agentproto.StepInstall:
		return s.takeInstall(ctx, key, reply)
	case agentproto.StepUpgradeAgent:
		return s.takeUpgrade(ctx, key, reply)
	case agentproto.StepWipeDisk, agentproto.StepJoinCluster:
		return s.learn(ctx, key, func(_ context.Context, w *transaction.Work, h *domain.Host) error {
			w.TakeWipe(h, reply)
			w.TakeJoin(h, reply)
			return nil
		})
	case agentproto.StepBootArtifacts, agentproto.StepRebootForReclaim:
		return s.takeReclaim(ctx, key, reply)
	default:
	}
	learned, err := hostplan.Understand(reply)
	if err != nil || learned == nil || s.changesNothing(key, learned) {
		return err
	}
	return s.learn(ctx, key, func(_ context.Context, _ *transaction.Work, h *domain.Host) error {
		learned(h)
		return nil
	})
}

// changesNothing is true where a host is in memory as it is stored, and a check leaves it as it is. A cluster whose hosts are to be assessed again needs a transaction.
func (s *Machines) changesNothing(key domain.HostKey, learned func(*domain.Host)) bool {
	h := s.engine.Hosts.Known(key)
	if h == nil || s.disconnected.Load() || !h.MediaConnected || h.Twin != "" || lifecycle.Silent(h.State) || s.engine.Reviews.Due(h.ClusterID, s.engine.Clock.Now(), s.PollInterval) {
		return false
	}
	after := *h
	learned(&after)
	return reflect.DeepEqual(*h, after)
}

// learn changes a host and brings it up to date.
func (s *Machines) learn(ctx context.Context, key domain.HostKey, do func(ctx context.Context, w *transaction.Work, h *domain.Host) error) error {
	_, err := s.change(ctx, domain.Machine, key, func(ctx context.Context, w *transaction.Work, h *domain.Host) error {
		if err := do(ctx, w, h); err != nil {
			return err
		}
		return w.Refresh(ctx, h)
	})
	return err
}

func (s *Machines) takeInventory(ctx context.Context, known *domain.Host, key domain.HostKey, reply agentproto.StepReply) error {
	if reply.ExitCode != 0 {
		return nil
	}
	kept, summary, err := hardware.Read(reply.Output, s.Now())
	if err != nil {
		return domain.Refuse(domain.Invalid, "InventoryInvalid", "the inventory cannot be read: it must be a JSON object of at most %d bytes", hardware.MaxReadBytes)
	}
	if after := *known; known.RunsFromDisk() {
		if !after.ReportAddresses(s.Now(), summary.Addresses) {
			return nil
		}
		return s.learn(ctx, key, func(_ context.Context, w *transaction.Work, h *domain.Host) error {
			if h.RunsFromDisk() {
				h.ReportAddresses(w.Now, summary.Addresses)
			}
			return nil
		})
	}
	if known.Assisted() && known.Fingerprint == "" && hostplan.OtherMachine(known.Summary, summary) {
		return s.takeSecondMachine(ctx, key, summary)
	}
	if known.Twin == "" && known.Summary.Hash == summary.Hash && slices.Equal(known.Summary.Targets, summary.Targets) && known.Summary.ClockSkewSeconds == summary.ClockSkewSeconds && known.MediaConnected {
		return nil
	}
	return s.learn(ctx, key, func(ctx context.Context, w *transaction.Work, h *domain.Host) error {
		h.MediaConnected = true
		if w.Now.Sub(h.TwinAt) > twinRest*s.PollInterval {
			h.Twin, h.TwinAt = "", time.Time{}
		}
		if lifecycle.Busy(h.State) && h.Summary.Hash != "" {
			return nil
		}
		h.Summary, h.InventoryAt = summary, w.Now
		if h.Summary.Truncation != "" {
			w.Tell(h, h.ClusterID, domain.Warning, "host_inventory_truncated", true, "Host %s: the inventory is too large, parts of it are left out", h.FreeLabel())
		}
		return w.PutInventory(ctx, key, kept)
	})
}

// twinRest is how many poll intervals after its last report the other one of two machines with one id is taken for gone.
const twinRest = 5

// takeSecondMachine keeps that two machines report as one host, which is not to be installed then: it is not known which of them would be.
func (s *Machines) takeSecondMachine(ctx context.Context, key domain.HostKey, other hardware.Summary) error {
	return s.learn(ctx, key, func(_ context.Context, w *transaction.Work, h *domain.Host) error {
		if !hostplan.OtherMachine(h.Summary, other) {
			return nil
		}
		h.Twin, h.TwinAt = "one has network card "+h.Summary.MACAddresses[0]+", the other "+other.MACAddresses[0], w.Now
		w.Tell(h, h.ClusterID, domain.Failure, "host_identity_in_use", true, "Host %s: two machines report as it: %s", h.FreeLabel(), h.Twin)
		return nil
	})
}

func (s *Machines) takeInstall(ctx context.Context, key domain.HostKey, reply agentproto.StepReply) error {
	if reply.ExitCode == 0 {
		return nil
	}
	return s.learn(ctx, key, func(ctx context.Context, w *transaction.Work, h *domain.Host) error {
		if h.State != lifecycle.Installing && h.State != lifecycle.InstallingInProgress || reply.ID != "" && !strings.HasPrefix(reply.ID, string(agentproto.StepInstall)+"-") {
			return nil
		}
		why := domain.Truncate(domain.WithoutSecrets(cmp.Or(reply.Error, reply.Output)), 1000)
		w.Tell(h, h.ClusterID, domain.Failure, "host_install_failed", false, "Host %s: the installation failed: %s", h.Label(), why)
		return w.ActBecause(ctx, h, lifecycle.Fail, nil, "", why)
	})
}

// reclaimAttempts is how often a machine may fail to restart into its discovery image: what it downloads may change while it does.
const reclaimAttempts = 3

// takeReclaim lets a machine restart that has all that it needs, and gives up one that cannot.
func (s *Machines) takeReclaim(ctx context.Context, key domain.HostKey, reply agentproto.StepReply) error {
	again := false
	err := s.learn(ctx, key, func(ctx context.Context, w *transaction.Work, h *domain.Host) error {
		again = false
		switch {
		case h.State != lifecycle.Reclaiming && h.State != lifecycle.ReclaimingRebooting:
			return nil
		case reply.ExitCode == 0 && reply.Type == agentproto.StepBootArtifacts:
			return w.Act(ctx, h, lifecycle.ReclaimReboot, nil)
		case reply.ExitCode == 0:
			return nil
		}
		why := domain.Truncate(domain.WithoutSecrets(cmp.Or(reply.Error, reply.Output, "the agent does not say why")), 1000)
		if h.Attempts++; h.Attempts < reclaimAttempts {
			again = true
			return nil
		}
		w.Tell(h, "", domain.Warning, "host_reclaim_failed", true, "Host %s: it cannot restart into the discovery image by itself: %s", h.FreeLabel(), why)
		return w.ActBecause(ctx, h, lifecycle.ReclaimFail, nil, "", why)
	})
	if e := s.engine.Hosts.Get(key); e != nil && again {
		e.AskAgain()
	}
	return err
}

// takeUpgrade tells why an agent could not be upgraded. One that was registers again.
func (s *Machines) takeUpgrade(ctx context.Context, key domain.HostKey, reply agentproto.StepReply) error {
	if reply.ExitCode == 0 {
		return nil
	}
	_, err := s.change(ctx, domain.Machine, key, func(_ context.Context, w *transaction.Work, h *domain.Host) error {
		w.Tell(h, h.ClusterID, domain.Warning, "host_agent_upgrade_failed", true, "Host %s: agent %s was not upgraded to %s: %s",
			h.FreeLabel(), h.AgentVersion, s.AgentVersion, domain.Truncate(domain.WithoutSecrets(cmp.Or(reply.Error, reply.Output)), 1000))
		return nil
	})
	return err
}
