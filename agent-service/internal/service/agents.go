// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package service

import (
	"cmp"
	"context"
	"time"

	"github.com/muster-io/muster/agent-service/internal/agentproto"
	"github.com/muster-io/muster/agent-service/internal/domain"
	"github.com/muster-io/muster/agent-service/internal/hostplan"
	"github.com/muster-io/muster/agent-service/internal/lifecycle"
	"github.com/muster-io/muster/agent-service/internal/transaction"
)

// Machines is what machines ask and report: registration, polls, steps, first-boot data, progress.
type Machines struct{ *core }

// RegisterHost makes or renews a host. Conflict IdentityInUse: another live machine has this id, or one that sent a fingerprint, which this one does not. Conflict
// HostInstalled: it is installed and should boot from its disk.
func (s *Machines) RegisterHost(ctx context.Context, infraEnvID string, request domain.NewHost) (*domain.Host, error) {
	if err := domain.CheckID("host_id", request.HostID); err != nil {
		return nil, err
	}
	s.Registers.Add(1)
	request.AgentVersion, request.Fingerprint, request.BootID = domain.Truncate(request.AgentVersion, 200), domain.Truncate(request.Fingerprint, 128), domain.Truncate(request.BootID, 64)
	key := domain.HostKey{InfraEnvID: infraEnvID, HostID: request.HostID}
	h, err := s.engine.Register(ctx, key, request)
	if err != nil {
		s.tellRefusedRegistration(ctx, key, request, err)
		return nil, err
	}
	return new(*h), nil
}

// Admitted is whether the agent of a registered host acts with its image's token of a generation, also after that was revoked or has expired: agents of
// assisted-service cannot take another one while they run. It ends with HostGeneration, and when the host registers again.
func (s *Machines) Admitted(ctx context.Context, key domain.HostKey, imageGeneration int64) (bool, error) {
	found, err := s.memory.Entry(ctx, key)
	if domain.KindOf(err) == domain.NotFound {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	current, err := s.TokenGenerations(ctx, key.InfraEnvID)
	if err != nil {
		return false, err
	}
	return imageGeneration > 0 && found.Host().Admission == domain.Generations{ImageGeneration: imageGeneration, HostGeneration: current.HostGeneration}, nil
}

// MustRegister is whether the agent of a host cannot go on without a new registration: the host is not known, or what its agent was Admitted with was revoked.
func (s *Machines) MustRegister(ctx context.Context, key domain.HostKey) (bool, error) {
	e, err := s.memory.Entry(ctx, key)
	if domain.KindOf(err) == domain.NotFound {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	current, err := s.TokenGenerations(ctx, key.InfraEnvID)
	if err != nil {
		return false, err
	}
	h := e.Host()
	return h.BootID == "" && h.Admission.HostGeneration != current.HostGeneration, nil
}

// HoldsStamps is whether what a token carries is of the host's present registration and binding, from memory; NotFound for unknown hosts.
func (s *Machines) HoldsStamps(ctx context.Context, key domain.HostKey, carried domain.Stamps) (bool, error) {
	e, err := s.memory.Entry(ctx, key)
	if err != nil {
		return false, err
	}
	if holds := e.Host().Stamps.Accept(carried); holds || !s.engine.Store.Shared() {
		return holds, nil
	}
	// Another replica may have registered the host just now.
	if e, err = s.memory.Read(ctx, key); err != nil {
		return false, err
	}
	return e.Host().Stamps.Accept(carried), nil
}

// NextInstructions is a heartbeat. It is held for at most hold (≤ MaxHold, 0 for an answer at once) and answered at
// once when there is something to do, also when that came before the poll.
func (s *Machines) NextInstructions(ctx context.Context, key domain.HostKey, hold time.Duration) (Instructions, error) {
	return s.next(ctx, key, nil, hold)
}

// NextInstructionsWith is NextInstructions for a token that carries stamps: where it ends, the poll is answered at once and tells nothing more (Ended). An installed system says
// what there is of the certificate of its kubelet.
func (s *Machines) NextInstructionsWith(ctx context.Context, key domain.HostKey, carried domain.Stamps, certificate agentproto.KubeletCertificate, hold time.Duration) (Instructions, error) {
	if err := s.NoteKubelet(ctx, key, carried, certificate); err != nil {
		return Instructions{}, err
	}
	return s.next(ctx, key, &carried, hold)
}

// ended is the answer to a poll whose token ended while it was held. The host asks for its next steps with its next token.
func ended(h *domain.Host) Instructions {
	answer := Instructions{NextSeconds: 1, Revision: h.Revision, Ended: true}
	if !lifecycle.Installs(h.State) {
		answer.Steps = []agentproto.Step{{Type: agentproto.StepStopInstallation, ID: hostplan.StepID(h.HostKey, agentproto.StepStopInstallation, hostplan.Situation(h)), Args: []string{}}}
	}
	return answer
}

// next answers a poll; carried is nil where the token that it came with carries no stamps.
func (s *Machines) next(ctx context.Context, key domain.HostKey, carried *domain.Stamps, hold time.Duration) (Instructions, error) {
	s.Polls.Add(1)
	began := s.Now()
	hold = min(max(hold, 0), MaxHold)
	e, err := s.memory.Entry(ctx, key)
	if err != nil {
		return Instructions{}, err
	}
	// A host that polled already is away as long as that is not written down: its agent may have registered first, or the store may have been away.
	_, connected := e.Seen()
	known := e.Host()
	returns := !connected || lifecycle.Silent(known.State) && known.MediaConnected
	e.Touch()
	var of []agentproto.StepType
	if carried != nil && carried.Registration == "" && known.Stamps != (domain.Stamps{}) { // tokens of v0.1 carried no stamps, those of agents neither
		of = ofResident
		if err := s.NoteResident(ctx, known, *carried); err != nil {
			return Instructions{}, err
		}
	}
	if returns {
		if err := s.Refresh(ctx, key); err != nil && domain.KindOf(err) != domain.NotFound {
			return Instructions{}, err
		}
	}
	timer := time.NewTimer(hold)
	defer timer.Stop()
	held := false
	for {
		if e, err = s.memory.Entry(ctx, key); err != nil {
			return Instructions{}, err
		}
		h, changed, gone := e.Watch()
		if gone {
			return Instructions{}, domain.RefuseUnknown("Host", key.HostID)
		}
		if carried != nil && !h.Stamps.Accept(*carried) {
			return ended(h), nil
		}
		if carried == nil && h.Admission != known.Admission { // who polls with the token of an image has to show again what it opens
			return Instructions{NextSeconds: 1, Revision: h.Revision}, nil
		}
		instructions, due, err := s.instruct(ctx, e, key, of)
		instructions.Held = s.Now().Sub(began)
		if err != nil || due || hold == 0 {
			return instructions, err
		}
		if !held {
			held = true
			s.Held.Add(1)
			defer s.Held.Add(-1)
		}
		select {
		case <-ctx.Done():
			return instructions, nil
		case <-s.stopping:
			return instructions, nil
		case <-timer.C:
			e.Touch()
			return instructions, nil
		case <-changed:
		}
	}
}

// Refresh brings a host's state up to date with what is known: a poll after silence, silence after polls.
func (s *Machines) Refresh(ctx context.Context, key domain.HostKey) error {
	_, err := s.change(ctx, domain.Machine, key, func(ctx context.Context, w *transaction.Work, h *domain.Host) error {
		if s.engine.Hosts.Connected(h) {
			h.MediaConnected = true
		}
		return w.Refresh(ctx, h)
	})
	return err
}

// ReportProgress takes a stage, from the agent or from the installed system. Conflict StageNotExpected where the host does not install.
func (s *Machines) ReportProgress(ctx context.Context, key domain.HostKey, report domain.ProgressReport) (*domain.Host, error) {
	if lifecycle.Percentage(report.Stage) == 0 && report.Stage != lifecycle.StageFailed {
		return nil, domain.Refuse(domain.Invalid, "StageUnknown", "there is no stage %q", domain.Truncate(string(report.Stage), 64))
	}
	h, err := s.change(ctx, domain.Machine, key, func(ctx context.Context, w *transaction.Work, h *domain.Host) error {
		if lifecycle.AfterReboot(h.Progress.Stage) && !lifecycle.AfterReboot(report.Stage) && report.Stage != lifecycle.StageFailed && h.State != lifecycle.Installing {
			return domain.Refuse(domain.Conflict, "StageNotExpected", "host %s was at stage %q already", key.HostID, h.Progress.Stage)
		}
		c, err := w.TrackCluster(ctx, h.ClusterID)
		if err != nil {
			return err
		}
		info := domain.Truncate(domain.WithoutSecrets(report.Info), 2000)
		if err := w.ActBecause(ctx, h, lifecycle.Progress, c, report.Stage, why(report.Stage, info)); err != nil {
			return err
		}
		if h.Progress.Stage != report.Stage {
			w.Tell(h, h.ClusterID, domain.Info, "host_install_progress_updated", false, "Host %s: reached installation stage %s", h.Label(), report.Stage)
			h.Progress.StageStartedAt = w.Now
			h.Progress.Percentage = max(h.Progress.Percentage, lifecycle.Percentage(report.Stage))
		}
		if h.Progress.Stage != report.Stage || h.Progress.Info != info {
			h.Progress.Stage, h.Progress.Info, h.Progress.StageUpdatedAt = report.Stage, info, w.Now
		}
		return w.Refresh(ctx, h)
	})
	if err != nil {
		return nil, err
	}
	if e := s.engine.Hosts.Get(key); e != nil {
		e.Touch()
	}
	return h, nil
}

// why is what a report says of a failure, empty for what is none.
func why(stage lifecycle.Stage, info string) string {
	if stage == lifecycle.StageFailed {
		return info
	}
	return ""
}

// ReportEvent keeps an event that an agent triggers, bounded and for the cluster only while bound.
func (s *Machines) ReportEvent(ctx context.Context, key domain.HostKey, event domain.Event) error {
	if err := event.CheckReported(); err != nil {
		return err
	}
	if err := s.mayReportEvent(ctx, key); err != nil {
		return err
	}
	_, err := s.change(ctx, domain.Machine, key, func(_ context.Context, w *transaction.Work, h *domain.Host) error {
		if event.ClusterID != "" && event.ClusterID != h.ClusterID {
			return domain.RefuseUnknown("Cluster", event.ClusterID)
		}
		if err := event.CheckSeverity(); err != nil {
			return err
		}
		w.Tell(h, h.ClusterID, event.Severity, event.Name, h.ClusterID == "", "%s", event.Message)
		recorded := &w.Recorded[len(w.Recorded)-1]
		recorded.Category, recorded.Reported = cmp.Or(event.Category, "user"), true
		if len(event.Props) > 0 {
			recorded.Props = event.Props
		}
		if event.At.After(h.CreatedAt) && event.At.Before(w.Now) { // else the machine's clock is wrong
			recorded.At = event.At.UTC()
		}
		return nil
	})
	return err
}

const (
	// eventBurst is how many events a host may report at once, and eventPause the time after which it may report one more.
	eventBurst = 30
	eventPause = 2 * time.Second
)

// mayReportEvent refuses a host that reports events too fast.
func (s *Machines) mayReportEvent(ctx context.Context, key domain.HostKey) error {
	e, err := s.memory.Entry(ctx, key)
	if err != nil {
		return err
	}
	if wait := e.TakeEvent(eventBurst, eventPause); wait > 0 {
		refusal := domain.Refuse(domain.TooMany, "EventsTooMany", "host %s reports events too fast: at most %d at once, and one each %s", key.HostID, eventBurst, eventPause)
		refusal.RetryAfter = wait
		return refusal
	}
	return nil
}

// tellRefusedRegistration writes an event about a registration that was refused.
func (s *Machines) tellRefusedRegistration(ctx context.Context, key domain.HostKey, request domain.NewHost, refusal error) {
	s.tellRefused(ctx, refusal, domain.Event{
		Name: "host_registration_failed", InfraEnvID: key.InfraEnvID, HostID: key.HostID, ForInfraEnv: true,
		Message: domain.Truncate("Host "+request.HostID+" from "+request.Source+": registration failed: "+refusal.Error(), 2000),
	})
}

// TokenGenerations are the current generations of an InfraEnv, from memory; NotFound for unknown ones, Unavailable where they may come back. A token is refused
// whose generation is another.
func (s *Machines) TokenGenerations(ctx context.Context, id string) (domain.Generations, error) {
	e, err := s.knownInfraEnv(ctx, id)
	if domain.KindOf(err) == domain.NotFound && s.RestoreTime > 0 && (!s.memory.Loaded() || s.engine.Clock.Now()-time.Duration(s.loadedAt.Load()) < s.RestoreTime) {
		awaited := domain.Refuse(domain.Unavailable, "InfraEnvAwaited", "InfraEnv %s is not known yet: the service began a moment ago", id)
		awaited.RetryAfter = restorePause
		return domain.Generations{}, awaited
	}
	if err != nil {
		return domain.Generations{}, err
	}
	return e.Generations, nil
}

// restorePause is how long machines wait for an InfraEnv that may come back.
const restorePause = 5 * time.Second

// BootsFromDisk says whether a machine of an InfraEnv boots its disk rather than the discovery image. Unavailable where that is not known: while the hosts are being loaded, while
// changes of other replicas are not known and the store is away, and, for a machine that is not known to be installed, while hosts may come back that the service lost with its data.
func (s *Machines) BootsFromDisk(ctx context.Context, infraEnvID, mac string) (bool, error) {
	disk, err := s.memory.BootsFromDisk(ctx, infraEnvID, mac)
	if err != nil || disk || s.RestoreTime == 0 {
		return disk, err
	}
	e, err := s.knownInfraEnv(ctx, infraEnvID)
	if err != nil || e.RestoredAt.IsZero() || s.Now().Sub(e.RestoredAt) >= s.RestoreTime {
		return false, err
	}
	awaited := domain.Refuse(domain.Unavailable, "HostsAwaited", "the hosts of InfraEnv %s are not all known yet: the service lost its data a moment ago", infraEnvID)
	awaited.RetryAfter = restorePause
	return false, awaited
}
