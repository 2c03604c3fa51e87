// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package agent is what runs on a discovered machine: it says what the machine is, asks the service what to do, and does it.
// A machine can be real or generated; on the wire both are the same.
package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	"go.uber.org/zap"

	"github.com/muster-io/muster/agent-service/api"
	"github.com/muster-io/muster/agent-service/internal/agentproto"
	"github.com/muster-io/muster/agent-service/internal/diskimage"
)

const (
	// firstBackOff and lastBackOff bound how long an agent waits after an error; in between the time doubles.
	firstBackOff = time.Second
	lastBackOff  = time.Minute
	// repliesFor is for how long a reply is sent again that was not answered.
	repliesFor = time.Minute
	// forget is when a reply is sent again that is equal to the last one of its type.
	forget = time.Hour
)

// Identity says which machine this is.
type Identity struct {
	// HostID is stable over restarts and different for machines with equal or dummy serials.
	HostID uuid.UUID
	// Fingerprint is a hash over all network addresses and disks.
	Fingerprint string
	// BootID is of the running kernel.
	BootID string
}

// Machine is what an agent runs on.
type Machine interface {
	Identity(ctx context.Context) (Identity, error)
	// Do carries out a step other than install, stop-installation and logs-gather and returns its output.
	Do(ctx context.Context, step api.Step) (output any, err error)
	// Logs are what helps to find out why an installation failed, by file name.
	Logs() map[string][]byte
	// Write puts the image onto the disk, checks it, adds the first-boot data and tells how far it is in percent.
	Write(ctx context.Context, job diskimage.Job, progress func(percent int)) error
	// Replace puts another program in the place of the agent, if it is what is wanted. It calls commit before it does, and does not where that fails.
	Replace(ctx context.Context, program io.Reader, wanted agentproto.UpgradeArgs, commit func() error) error
	// Restart boots the machine from its disk. A machine that comes back to life in this process is the installed system.
	Restart(ctx context.Context) error
	// Load gets ready what Boot restarts into, if it has the stated checksums.
	Load(ctx context.Context, wanted agentproto.BootArtifactsArgs) error
	// Boot restarts the machine into what was loaded. A machine that comes back to life in this process runs that.
	Boot(ctx context.Context) error
}

// Resident is a Machine that goes on in this process as the system that was installed on it.
type Resident interface {
	// InstalledToken is the one that the installed system asks for instructions with, empty for a system that does not.
	InstalledToken() string
}

// Options of an agent.
type Options struct {
	Connection *Connection
	Machine    Machine
	Version    string
	// Interval is the time between polls that are not held. Zero holds polls.
	Interval time.Duration
	// OnInstructions is called with all instructions and the time that the poll for them took, for measurements; nil for none.
	OnInstructions func(host uuid.UUID, steps []api.Step, took time.Duration)
	Log            *zap.Logger
}

// Agent is one machine's agent.
type Agent struct {
	Options
	identity Identity

	mu sync.Mutex
	// running are the steps that are under way, with what ends them.
	running map[api.StepType]context.CancelFunc
	sent    map[api.StepType]sent
	// disks is held by the step that writes to disks.
	disks sync.Mutex
	// replaced is set when another program takes over: no step begins any more.
	replaced bool
	// resident is true while this is the agent of an installed system.
	resident bool
	// registered is when the last registration was answered, contested how many tokens in a row ended soon after theirs.
	registered time.Time
	contested  int
	// first are the instructions that came with the registration, until they are followed.
	first *api.Steps
}

type sent struct {
	output string
	at     time.Time
}

// New makes an agent.
func New(options Options) *Agent {
	return &Agent{Options: options, running: map[api.StepType]context.CancelFunc{}, sent: map[api.StepType]sent{}}
}

// errAgain asks for a new registration.
var errAgain = errors.New("the service asks for a new registration")

// errDone ends the agent: the machine restarts from its disk.
var errDone = errors.New("the machine restarts")

// Run registers and serves the machine until ctx ends or the machine restarts. It goes on after every error: a service that is away comes back, and one
// that lost its data gets a new registration.
func (a *Agent) Run(ctx context.Context) error {
	identity, err := a.Machine.Identity(ctx)
	if err != nil {
		return fmt.Errorf("finding out which machine this is: %w", err)
	}
	a.identity = identity
	for {
		if err := a.register(ctx); err != nil {
			return err
		}
		err := a.serve(ctx)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, errDone):
			if back, err := a.installed(ctx); !back {
				return err
			}
			continue
		case errors.Is(err, errReplaced):
			return err
		}
		a.Log.Info("registering again", zap.Stringer("host", identity.HostID), zap.Error(err))
	}
}

// installed goes on as the installed system, where that asks for instructions here. It is true when the machine has booted the discovery image again.
func (a *Agent) installed(ctx context.Context) (back bool, err error) {
	machine, resides := a.Machine.(Resident)
	if !resides || machine.InstalledToken() == "" {
		return false, nil
	}
	a.Connection.use(machine.InstalledToken())
	if err := a.Reside(ctx); err != nil {
		return false, err
	}
	a.Connection.use("")
	a.identity, err = a.Machine.Identity(ctx)
	return err == nil, err
}

// register tries until it is done.
func (a *Agent) register(ctx context.Context) error {
	a.mu.Lock()
	clear(a.sent)
	a.mu.Unlock()
	for wait := range backOff {
		narrow := a.Connection.ofHost()
		answer, err := a.Connection.Register(ctx, a.identity, a.Version)
		if !installs(answer.Status, err, narrow) {
			// The service ended the installation while it could not notify the agent.
			a.stop(api.StepTypeInstall)
		}
		if err == nil {
			a.registered, a.first = time.Now(), answer.Instructions
			a.Log.Info("registered", zap.Stringer("host", a.identity.HostID))
			return nil
		}
		a.Log.Info("the registration was refused", zap.Stringer("host", a.identity.HostID), zap.Error(err))
		if narrow && statusOf(err) == http.StatusUnauthorized {
			continue // the token of the host ended; that of the image is next
		}
		if err := pause(ctx, max(wait, retryAfter(err))); err != nil {
			return err
		}
	}
	return nil
}

// installs is false where the answer to a registration says that the host is not being installed. A token of the host that ended says nothing of that.
func installs(state api.HostStatus, err error, narrow bool) bool {
	status := statusOf(err)
	switch {
	case err == nil:
		return strings.HasPrefix(string(state), string(api.HostStatusInstalling))
	case status == http.StatusUnauthorized:
		return narrow
	}
	return status != http.StatusNotFound && status != http.StatusForbidden && status != http.StatusConflict
}

// backOff yields waiting times, for ever.
func backOff(yield func(time.Duration) bool) {
	for wait := firstBackOff; ; wait = min(2*wait, lastBackOff) {
		if !yield(wait/2 + rand.N(wait/2)) { //nolint:gosec // spreads agents
			return
		}
	}
}

func pause(ctx context.Context, wait time.Duration) error {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

// backOffContested waits where one token after the other ends soon after its registration: another machine may register as this one, which ends the token each time.
func (a *Agent) backOffContested(ctx context.Context) {
	if time.Since(a.registered) >= firstBackOff {
		a.contested = 0
		return
	}
	if a.contested++; a.contested > 1 {
		_ = pause(ctx, firstBackOff)
	}
}

// serve polls and works until a new registration is needed.
func (a *Agent) serve(ctx context.Context) error {
	var workers sync.WaitGroup
	defer workers.Wait()
	// A step that ends serving ends the poll that is held meanwhile, too.
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	wait, renewed := firstBackOff, false
	for ctx.Err() == nil {
		begin := time.Now()
		steps, err := a.next(ctx)
		if ctx.Err() != nil {
			break
		}
		took := time.Since(begin)
		if err == nil && a.OnInstructions != nil {
			a.OnInstructions(a.identity.HostID, steps.Instructions, took)
		}
		if err == nil && steps.TokenEnded && !a.resident {
			a.ended(steps.Instructions)
			err = errTokenEnded
			a.backOffContested(ctx)
		}
		switch statusOf(err) {
		case http.StatusNotFound:
			return fmt.Errorf("%w: %w", errAgain, err)
		case http.StatusUnauthorized:
			if a.resident {
				return err // an installed system registers nothing
			}
			// The token ended. Whether the work has, the new registration says.
			if err := a.register(ctx); err != nil {
				return cmp.Or(context.Cause(ctx), err)
			}
			if renewed = !renewed; renewed {
				continue
			}
			a.first = nil // by the time that it is followed, another thing may be asked for
		}
		next := max(wait, retryAfter(err))
		wait = min(2*wait, lastBackOff)
		if err == nil {
			wait, renewed = firstBackOff, false
			next = a.rest(steps, took)
			a.start(ctx, &workers, steps.Instructions, end)
			if steps.PostStepAction == api.Exit {
				return errAgain
			}
		}
		_ = pause(ctx, next) // the loop ends with ctx
	}
	return context.Cause(ctx)
}

// next are the next instructions: those of the registration, then those of a poll.
func (a *Agent) next(ctx context.Context) (*api.Steps, error) {
	if first := a.first; first != nil {
		a.first = nil
		return first, nil
	}
	return a.Connection.Next(ctx, a.identity.HostID, a.Interval == 0, a.kubeletCertificate())
}

// errTokenEnded stands for what the next request with the token would be answered.
var errTokenEnded = &Refusal{Status: http.StatusUnauthorized, Reason: "the token ended while the poll was held"}

// ended follows an answer whose token has ended: what is to be stopped is stopped, without a reply, which would not be taken, and the next token is that of the image.
func (a *Agent) ended(steps []api.Step) {
	for _, step := range steps {
		if step.StepType == api.StepTypeStopInstallation {
			a.stop(api.StepTypeInstall)
		}
	}
	a.Connection.use("")
}

// rest is how long to wait before the next poll. A poll that was held, or that brought work, is followed by the next one at once.
func (a *Agent) rest(steps *api.Steps, took time.Duration) time.Duration {
	if a.Interval > 0 {
		return max(0, a.Interval-took)
	}
	asked := time.Duration(max(1, steps.NextInstructionSeconds)) * time.Second
	if took >= asked {
		return 0
	}
	if len(steps.Instructions) > 0 && asked <= time.Second {
		return 50 * time.Millisecond
	}
	return asked - took
}

// start begins the steps that are not running yet. One that ends serving calls end.
func (a *Agent) start(ctx context.Context, workers *sync.WaitGroup, steps []api.Step, end context.CancelCauseFunc) {
	for _, step := range steps {
		ctx, cancel := context.WithCancel(ctx)
		a.mu.Lock()
		_, busy := a.running[step.StepType]
		if busy = busy || a.replaced; !busy {
			a.running[step.StepType] = cancel
		}
		a.mu.Unlock()
		if busy {
			cancel()
			continue
		}
		workers.Go(func() {
			err := a.carryOut(ctx, step)
			stopped := ctx.Err() != nil
			cancel()
			a.mu.Lock()
			delete(a.running, step.StepType)
			a.mu.Unlock()
			if err != nil && !stopped {
				end(err)
			}
		})
	}
}

// stop ends a step that is under way.
func (a *Agent) stop(step api.StepType) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if cancel, running := a.running[step]; running {
		cancel()
	}
}

// committed says that a step can no longer be stopped.
func (a *Agent) committed(step api.StepType) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.running[step] = func() {}
}

// carryOut does one step and reports it. An error ends serving.
func (a *Agent) carryOut(ctx context.Context, step api.Step) error {
	var output any
	var err error
	switch step.StepType {
	case api.StepTypeInstall:
		a.stop(api.StepTypeWipeDisk) // it is of a host that the service has forgotten meanwhile
		a.disks.Lock()
		defer a.disks.Unlock()
		return a.install(ctx, step)
	case api.StepTypeWipeDisk:
		a.disks.Lock()
		output, err = a.Machine.Do(ctx, step)
		a.disks.Unlock()
	case api.StepTypeStopInstallation:
		a.stop(api.StepTypeInstall)
	case api.StepTypeLogsGather:
		err = a.sendLogs(ctx, step)
	case api.StepTypeDownloadBootArtifacts:
		err = a.load(ctx, step)
	case api.StepTypeRebootForReclaim:
		if err = a.reboot(ctx, step); errors.Is(err, errDone) {
			return err
		}
	case api.StepTypeJoinCluster:
		err = a.join(step)
	case api.StepTypeUpgradeAgent:
		if err = a.upgrade(ctx, step); err == nil {
			return errReplaced
		}
	default:
		output, err = a.Machine.Do(ctx, step)
	}
	if ctx.Err() != nil {
		return nil
	}
	answer := reply(step, output, err)
	if a.known(answer) {
		return nil
	}
	if err := a.deliver(ctx, answer); err != nil {
		a.Log.Info("a reply was not taken", zap.Stringer("host", a.identity.HostID), zap.String("step", string(step.StepType)), zap.Error(err))
		return nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.sent[step.StepType] = sent{output: answer.Output + answer.Error, at: time.Now()}
	return nil
}

// deliver sends a reply, again where the service may not have it: the replica that took the connection may be gone. An older reply than repliesFor is not worth sending.
func (a *Agent) deliver(ctx context.Context, reply api.StepReply) error {
	begin := time.Now()
	for wait := range backOff {
		err := a.Connection.Reply(ctx, a.identity.HostID, reply)
		status := statusOf(err)
		refused := status >= http.StatusBadRequest && status < http.StatusInternalServerError && status != http.StatusTooManyRequests
		if err == nil || refused || time.Since(begin) > repliesFor {
			return err
		}
		if pause(ctx, max(wait, retryAfter(err))) != nil {
			return err
		}
	}
	return nil
}

// known is true for a reply that the service has already.
func (a *Agent) known(reply api.StepReply) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	last, ever := a.sent[reply.StepType]
	return ever && last.output == reply.Output+reply.Error && time.Since(last.at) < forget &&
		(reply.StepType == api.StepTypeInventory || reply.StepType == api.StepTypeNtpSynchronizer)
}
