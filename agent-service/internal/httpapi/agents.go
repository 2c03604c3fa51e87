// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package httpapi

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/muster-io/muster/agent-service/api"
	"github.com/muster-io/muster/agent-service/internal/agentproto"
	"github.com/muster-io/muster/agent-service/internal/domain"
	"github.com/muster-io/muster/agent-service/internal/lifecycle"
	"github.com/muster-io/muster/agent-service/internal/service"
	"github.com/muster-io/muster/agent-service/internal/token"
)

// machines are the operations of machines.
type machines struct{ *server }

// RegisterHost implements api.StrictServerInterface.
func (s *machines) RegisterHost(ctx context.Context, r api.RegisterHostRequestObject) (api.RegisterHostResponseObject, error) {
	k := key(r.InfraEnvID, r.Body.HostID)
	c := callerOf(ctx)
	if c.machine != nil && (c.machine.Opens(k.InfraEnvID, k.HostID) != nil || c.machine.Installed()) {
		return nil, errNotFound
	}
	if c.machine == nil {
		if _, err := s.Service.GetInfraEnv(ctx, c.person, k.InfraEnvID); err != nil {
			return nil, err
		}
	}
	version := given(r.Params.DiscoveryAgentVersion)
	if version == "" {
		version = r.Body.DiscoveryAgentVersion
	}
	host, err := s.Service.RegisterHost(ctx, k.InfraEnvID, domain.NewHost{
		HostID: k.HostID, AgentVersion: version, Fingerprint: r.Body.Fingerprint, BootID: r.Body.BootID, ImageGeneration: imageGeneration(c), Source: c.source,
	})
	if err != nil {
		return nil, tryAgain(err, r.Body.BootID == "")
	}
	answer, err := s.registered(ctx, host)
	if err != nil || !r.Body.Instructions {
		return answer, err
	}
	// A poll tells the agent what this does not.
	if first, err := s.Service.NextInstructionsWith(ctx, k, host.Stamps, "", 0); err == nil {
		answer.Instructions = new(stepsOf(first))
	}
	return answer, nil
}

// refusedForNow are the reasons why a machine is not registered at the moment, and may be later.
var refusedForNow = []string{"ClusterNotAccepting", "IdentityInUse"}

// tryAgain is the refusal of a registration. Agents of assisted-service try again after a minute, but wait for ever after a conflict.
func tryAgain(err error, assisted bool) error {
	if refusal, is := errors.AsType[*domain.Error](err); assisted && is && slices.Contains(refusedForNow, refusal.Reason) {
		later := *refusal
		later.Kind, later.RetryAfter = domain.Unavailable, time.Minute
		return &later
	}
	return err
}

// imageGeneration is of the image's token that a machine came with, 0 for others.
func imageGeneration(c caller) int64 {
	if c.machine == nil || c.machine.HostID != "" {
		return 0
	}
	return c.machine.Generation
}

// registered tells the agent how to go on: agents in the field are given the arguments of their next program, those of this service a token for the host.
func (s *machines) registered(ctx context.Context, host *domain.Host) (answer api.RegisteredHost, err error) {
	answer.Host = s.host(host)
	if answer.Token, err = s.Authority.ForAgent(ctx, host); err != nil {
		return answer, err
	}
	// agent_version is the container image that an agent of assisted-service runs next: the one that runs already, unless another is configured.
	answer.NextStepRunnerCommand.Args = []string{text(map[string]string{
		"infra_env_id": host.InfraEnvID, "host_id": host.HostID, "agent_version": cmp.Or(s.AgentImage, host.AgentVersion, s.Release),
	})}
	answer.NextStepRunnerCommand.RetrySeconds = 60
	return answer, nil
}

// GetNextSteps implements api.StrictServerInterface.
func (s *machines) GetNextSteps(ctx context.Context, r api.GetNextStepsRequestObject) (api.GetNextStepsResponseObject, error) {
	k := key(r.InfraEnvID, r.HostID)
	if unknown, err := s.unregistered(ctx, callerOf(ctx), k); err != nil {
		return nil, err
	} else if unknown {
		return api.GetNextSteps200JSONResponse{PostStepAction: api.Exit, Instructions: []api.Step{}}, nil
	}
	if err := s.mayAct(ctx, k); err != nil {
		return nil, err
	}
	hold := s.Hold
	if r.Params.Wait != nil {
		hold = min(hold, time.Duration(*r.Params.Wait)*time.Second)
	}
	instructions, err := s.instructions(ctx, k, hold, agentproto.KubeletCertificate(given(r.Params.KubeletCertificate)))
	if err != nil {
		return nil, err
	}
	answer := api.GetNextSteps200JSONResponse(stepsOf(instructions))
	// The token is renewed beside the instructions, not in a request of its own. Only agents that say how long they wait know of it.
	if machine := callerOf(ctx).machine; machine != nil && !instructions.Ended && r.Params.Wait != nil && s.Authority.Due(*machine) {
		answer.Token, err = s.Authority.Renew(*machine)
	}
	return answer, err
}

// stepsOf is how instructions are sent.
func stepsOf(instructions service.Instructions) api.Steps {
	answer := api.Steps{NextInstructionSeconds: instructions.NextSeconds, PostStepAction: api.Continue, Instructions: []api.Step{}, TokenEnded: instructions.Ended}
	if instructions.Exit {
		answer.PostStepAction = api.Exit
	}
	for _, step := range instructions.Steps {
		shown := api.Step{StepType: api.StepType(step.Type), StepID: step.ID, Args: step.Args}
		if shown.Args == nil {
			shown.Args = []string{}
		}
		answer.Instructions = append(answer.Instructions, shown)
	}
	return answer
}

// instructions are those for the caller: a poll ends with the token that it came with. An installed system says what there is of the certificate of its kubelet.
func (s *machines) instructions(ctx context.Context, k domain.HostKey, hold time.Duration, certificate agentproto.KubeletCertificate) (service.Instructions, error) {
	machine := callerOf(ctx).machine
	if machine == nil {
		return s.Service.NextInstructions(ctx, k, hold)
	}
	if machine.HostID == "" {
		return s.instructionsOfAdmitted(ctx, k, hold)
	}
	answer, err := s.Service.NextInstructionsWith(ctx, k, machine.Stamps, certificate, hold)
	if err == nil && !answer.Ended && errors.Is(s.Authority.Current(ctx, *machine), token.ErrRevoked) {
		answer = service.Instructions{NextSeconds: 1, Ended: true} // with all of its infra-env's hosts
	}
	return answer, err
}

// instructionsOfAdmitted are those for an agent with the token of its image. Where its host was deleted, or what it was admitted with ended, while the poll was held, it registers again.
func (s *machines) instructionsOfAdmitted(ctx context.Context, k domain.HostKey, hold time.Duration) (service.Instructions, error) {
	c := callerOf(ctx)
	answer, err := s.Service.NextInstructions(ctx, k, hold)
	if err != nil && domain.KindOf(err) != domain.NotFound {
		return answer, err
	}
	unknown, why := s.unregistered(ctx, c, k)
	switch {
	case why != nil:
		return service.Instructions{}, why
	case unknown:
		return service.Instructions{Exit: true}, nil
	case err == nil:
		err = s.opens(ctx, *c.machine, k)
	}
	return answer, err
}

// unregistered is true where a machine with the token of its image polls for a host that has to register: it was deleted, the service lost its data, or what it was admitted
// with was revoked. Agents of assisted-service wait for ever after 404; asked to exit, they are started again and register. Our own come with a token of the host.
func (s *server) unregistered(ctx context.Context, c caller, k domain.HostKey) (bool, error) {
	ofImage := c.machine != nil && c.machine.HostID == ""
	if opens := ofImage && c.machine.Opens(k.InfraEnvID, k.HostID) == nil; !opens {
		return false, nil
	}
	return s.Service.MustRegister(ctx, k)
}

// PostStepReply implements api.StrictServerInterface.
func (s *machines) PostStepReply(ctx context.Context, r api.PostStepReplyRequestObject) (api.PostStepReplyResponseObject, error) {
	k := key(r.InfraEnvID, r.HostID)
	if err := s.mayAct(ctx, k); err != nil {
		return nil, err
	}
	return api.PostStepReply204Response{}, s.Service.ReportStep(ctx, k, agentproto.StepReply{
		Type: agentproto.StepType(r.Body.StepType), ID: withoutNUL(r.Body.StepID), ExitCode: r.Body.ExitCode, Output: withoutNUL(r.Body.Output), Error: withoutNUL(r.Body.Error),
	})
}

// withoutNUL leaves out what a database cannot keep, also where the text is JSON that escapes it: firmware says strange things.
func withoutNUL(text string) string {
	const escaped = `\u0000`
	text = strings.ReplaceAll(text, "\x00", "")
	if !strings.Contains(text, escaped) {
		return text
	}
	var kept strings.Builder
	for {
		at := strings.IndexByte(text, '\\')
		if at < 0 || at+1 == len(text) {
			return kept.String() + text
		}
		kept.WriteString(text[:at])
		if text = text[at:]; strings.HasPrefix(text, escaped) {
			text = text[len(escaped):]
			continue
		}
		kept.WriteString(text[:2]) // what is escaped here may be a backslash, which escapes nothing itself
		text = text[2:]
	}
}

// UpdateHostInstallProgress implements api.StrictServerInterface.
func (s *machines) UpdateHostInstallProgress(ctx context.Context, r api.UpdateHostInstallProgressRequestObject) (api.UpdateHostInstallProgressResponseObject, error) {
	k := key(r.InfraEnvID, r.HostID)
	if err := s.mayAct(ctx, k); err != nil {
		return nil, err
	}
	if r.Body.CurrentStage == "" {
		return nil, invalid("current_stage: name the stage")
	}
	_, err := s.Service.ReportProgress(ctx, k, domain.ProgressReport{Stage: lifecycle.Stage(r.Body.CurrentStage), Info: r.Body.ProgressInfo})
	return api.UpdateHostInstallProgress200Response{}, err
}

// DownloadFirstBoot implements api.StrictServerInterface.
func (s *machines) DownloadFirstBoot(ctx context.Context, r api.DownloadFirstBootRequestObject) (api.DownloadFirstBootResponseObject, error) {
	file, err := s.firstBoot(ctx, key(r.InfraEnvID, r.HostID))
	return api.DownloadFirstBoot200ApplicationOctetStreamResponse{FileApplicationOctetStreamResponse: file}, err
}

// DownloadHostIgnition implements api.StrictServerInterface.
func (s *machines) DownloadHostIgnition(ctx context.Context, r api.DownloadHostIgnitionRequestObject) (api.DownloadHostIgnitionResponseObject, error) {
	file, err := s.firstBoot(ctx, key(r.InfraEnvID, r.HostID))
	return api.DownloadHostIgnition200ApplicationOctetStreamResponse{FileApplicationOctetStreamResponse: file}, err
}

func (s *machines) firstBoot(ctx context.Context, k domain.HostKey) (api.FileApplicationOctetStreamResponse, error) {
	if err := s.mayAct(ctx, k); err != nil {
		return api.FileApplicationOctetStreamResponse{}, err
	}
	machine := callerOf(ctx).machine
	if machine != nil && machine.Installed() {
		return api.FileApplicationOctetStreamResponse{}, errNotFound
	}
	data, _, err := s.Service.FirstBoot(ctx, k)
	if err == nil && machine != nil { // what was read may be of the next binding
		err = s.Authority.Current(ctx, *machine)
	}
	if err != nil {
		return api.FileApplicationOctetStreamResponse{}, err
	}
	return download("first-boot", data), nil
}

func download(name string, data []byte) api.FileApplicationOctetStreamResponse {
	return api.FileApplicationOctetStreamResponse{Body: bytes.NewReader(data), ContentLength: int64(len(data)), Headers: api.FileResponseHeaders{
		ContentDisposition: `attachment; filename="` + name + `"`, LastModified: time.Now().UTC().Format(http.TimeFormat),
	}}
}
