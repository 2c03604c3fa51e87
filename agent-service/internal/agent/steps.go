// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"go.uber.org/zap"

	"github.com/muster-io/muster/agent-service/api"
	"github.com/muster-io/muster/agent-service/internal/diskimage"
)

// reply is what is reported about a step.
func reply(step api.Step, output any, err error) api.StepReply {
	r := api.StepReply{StepType: step.StepType, StepID: step.StepID}
	if output != nil {
		encoded, encodeErr := json.Marshal(output)
		r.Output, err = string(encoded), errors.Join(err, encodeErr)
	}
	if err != nil {
		r.ExitCode, r.Error = 1, err.Error()
	}
	return r
}

// arguments reads the JSON that is the only argument of most steps.
func arguments(step api.Step, into any) error {
	if len(step.Args) == 0 {
		return fmt.Errorf("the step %s has no arguments", step.StepType)
	}
	if err := json.Unmarshal([]byte(step.Args[0]), into); err != nil {
		return fmt.Errorf("reading the arguments of step %s: %w", step.StepType, err)
	}
	return nil
}

// install writes the disk, tells the stages, and restarts the machine. A failure is reported; the service says what comes then.
func (a *Agent) install(ctx context.Context, step api.Step) error {
	err := a.write(ctx, step)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		a.Log.Error("the installation failed", zap.Stringer("host", a.identity.HostID), zap.Error(err))
		return a.insist(ctx, func() error { return a.Connection.Reply(ctx, a.identity.HostID, reply(step, nil, err)) })
	}
	if err := a.insist(ctx, func() error { return a.Connection.Reply(ctx, a.identity.HostID, reply(step, nil, nil)) }); err != nil {
		return err
	}
	if err := a.stage(ctx, api.HostStageRebooting, ""); err != nil {
		return err
	}
	a.committed(step.StepType)
	if err := a.Machine.Restart(ctx); err != nil {
		return fmt.Errorf("restarting: %w", err)
	}
	return errDone
}

func (a *Agent) write(ctx context.Context, step api.Step) error {
	var job diskimage.Job
	if err := arguments(step, &job.InstallArgs); err != nil {
		return err
	}
	if err := a.stage(ctx, api.HostStageStartingInstallation, ""); err != nil {
		return err
	}
	var err error
	if job.FirstBootURL != "" {
		err = a.insist(ctx, func() (err error) {
			job.FirstBoot, err = a.Connection.FirstBoot(ctx, job.FirstBootURL)
			return err
		})
		if err != nil {
			return fmt.Errorf("getting the first-boot data: %w", err)
		}
	}
	if err := a.stage(ctx, api.HostStageInstalling, ""); err != nil {
		return err
	}
	if err := a.stage(ctx, api.HostStageWritingImageToDisk, "0%"); err != nil {
		return err
	}
	reported := time.Now()
	return a.Machine.Write(ctx, job, func(percent int) {
		if time.Since(reported) < 2*time.Second && percent < 100 {
			return
		}
		reported = time.Now()
		// The percentage is news, not a fact that has to arrive.
		if err := a.Connection.Progress(ctx, a.identity.HostID, api.HostStageWritingImageToDisk, fmt.Sprintf("%d%%", percent)); err != nil {
			a.Log.Debug("progress was not taken", zap.Error(err))
		}
	})
}

// stage tells a stage until the service takes it or refuses it.
func (a *Agent) stage(ctx context.Context, stage api.HostStage, info string) error {
	return a.insist(ctx, func() error { return a.Connection.Progress(ctx, a.identity.HostID, stage, info) })
}

// insist tries until the service has answered, also where the token ends meanwhile: the next poll registers again, and stops the work where it has ended.
func (a *Agent) insist(ctx context.Context, do func() error) error {
	return insist(ctx, func() error {
		err := do()
		if statusOf(err) == http.StatusUnauthorized {
			return fmt.Errorf("the token ended: %s", err) //nolint:errorlint // as what is tried again, not as an answer
		}
		return err
	})
}

// insist tries until the service has answered; 4xx is an answer.
func insist(ctx context.Context, do func() error) error {
	for wait := range backOff {
		err := do()
		if status := statusOf(err); err == nil || status >= 400 && status < 500 {
			return err
		}
		if err := pause(ctx, max(wait, retryAfter(err))); err != nil {
			return err
		}
	}
	return nil
}
