// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/muster-io/muster/agent-service/api"
	"github.com/muster-io/muster/agent-service/client"
	"github.com/muster-io/muster/agent-service/internal/agentproto"
)

const (
	// hold is how long the service is asked to hold a poll, in seconds.
	hold = 25
	// requestTimeout ends requests that hang; held polls have their time on top.
	requestTimeout = 30 * time.Second
	// maxFirstBoot is more than the manifests of a cluster can be, in base64 and beside all else.
	maxFirstBoot = 32 << 20
)

// Connection is how an agent reaches the service. Its token is narrowed to the host when it registers, and renewed with polls.
type Connection struct {
	base     *url.URL
	infraEnv uuid.UUID
	client   *client.Client
	http     *http.Client

	mu    sync.Mutex
	image string
	host  string
}

// NewConnection reaches the service at base (without the path of its interface) with the token of the discovery image.
func NewConnection(base string, infraEnv uuid.UUID, token string, transport *http.Client) (*Connection, error) {
	parsed, err := url.Parse(strings.TrimSuffix(base, "/"))
	if err != nil || parsed.Host == "" {
		return nil, errors.New("the URL of the service is http(s)://host[:port]")
	}
	c := &Connection{base: parsed, infraEnv: infraEnv, http: transport, image: token}
	c.client, err = client.NewClient(parsed.String()+api.Base, client.WithHTTPClient(transport), client.WithRequestEditorFn(c.authorize))
	if err != nil {
		return nil, fmt.Errorf("preparing the connection: %w", err)
	}
	return c, nil
}

func (c *Connection) authorize(_ context.Context, request *http.Request) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	token := c.host
	if token == "" {
		token = c.image
	}
	if token != "" {
		request.Header.Set("X-Secret-Key", token)
	}
	return nil
}

func (c *Connection) use(token string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.host = token
}

// Refusal is an answer of the service that is not what was asked for.
type Refusal struct {
	Status     int
	Reason     string
	RetryAfter time.Duration
}

// Error implements error.
func (r *Refusal) Error() string { return fmt.Sprintf("%d: %s", r.Status, r.Reason) }

func statusOf(err error) int {
	if refused, is := errors.AsType[*Refusal](err); is {
		return refused.Status
	}
	return 0
}

func retryAfter(err error) time.Duration {
	if refused, is := errors.AsType[*Refusal](err); is {
		return refused.RetryAfter
	}
	return 0
}

// answered reads an answer with the given status, or returns what stands instead.
func answered(response *http.Response, err error, status int, into any) error {
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != status {
		var body api.Error
		_ = json.NewDecoder(io.LimitReader(response.Body, 64<<10)).Decode(&body)
		seconds, _ := strconv.Atoi(response.Header.Get("Retry-After"))
		return &Refusal{Status: response.StatusCode, Reason: body.Reason, RetryAfter: time.Duration(seconds) * time.Second}
	}
	if into == nil {
		_, err := io.Copy(io.Discard, response.Body)
		return err
	}
	return json.NewDecoder(response.Body).Decode(into)
}

// registration is what an agent reads of the answer to one.
type registration struct {
	Status api.HostStatus `json:"status"`
	Token  string         `json:"token"`
	// Instructions are the first; nil from services that send none.
	Instructions *api.Steps `json:"instructions"`
}

// Register makes the host known, and returns the state that it is in then, with its first instructions. A host's token that is refused gives way to the image's.
func (c *Connection) Register(ctx context.Context, identity Identity, version string) (registered registration, err error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	response, err := c.client.RegisterHost(ctx, c.infraEnv, &api.RegisterHostParams{DiscoveryAgentVersion: &version}, api.HostCreateParams{ //nolint:bodyclose // answered closes it
		HostID: identity.HostID, DiscoveryAgentVersion: version, Fingerprint: identity.Fingerprint, BootID: identity.BootID, Instructions: true,
	})
	err = answered(response, err, http.StatusCreated, &registered)
	if statusOf(err) == http.StatusUnauthorized {
		c.use("")
	}
	if err == nil && registered.Token != "" {
		c.use(registered.Token)
	}
	return registered, err
}

// ofHost is true while requests carry a token of the host, not that of the image.
func (c *Connection) ofHost() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.host != ""
}

// Next asks what to do, and says what there is of the certificate of the kubelet, empty for a machine without one.
func (c *Connection) Next(ctx context.Context, host uuid.UUID, held bool, certificate agentproto.KubeletCertificate) (*api.Steps, error) {
	seconds, timeout := 0, requestTimeout
	if held {
		seconds, timeout = hold, requestTimeout+hold*time.Second
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	params := &api.GetNextStepsParams{Wait: &seconds, Timestamp: new(time.Now().Unix())}
	if certificate != "" {
		params.KubeletCertificate = new(string(certificate))
	}
	response, err := c.client.GetNextSteps(ctx, c.infraEnv, host, params) //nolint:bodyclose // answered closes it
	var steps api.Steps
	if err := answered(response, err, http.StatusOK, &steps); err != nil {
		return nil, err
	}
	if steps.Token != "" {
		c.use(steps.Token)
	}
	return &steps, nil
}

// Reply reports a step.
func (c *Connection) Reply(ctx context.Context, host uuid.UUID, reply api.StepReply) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	response, err := c.client.PostStepReply(ctx, c.infraEnv, host, nil, reply) //nolint:bodyclose // answered closes it
	return answered(response, err, http.StatusNoContent, nil)
}

// Progress reports a stage of the installation.
func (c *Connection) Progress(ctx context.Context, host uuid.UUID, stage api.HostStage, info string) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	progress := api.HostProgress{CurrentStage: stage, ProgressInfo: info}
	response, err := c.client.UpdateHostInstallProgress(ctx, c.infraEnv, host, nil, progress) //nolint:bodyclose // answered closes it
	return answered(response, err, http.StatusOK, nil)
}

// Program downloads the agent for an architecture.
func (c *Connection) Program(ctx context.Context, architecture string) (io.ReadCloser, error) {
	response, err := c.client.DownloadAgent(ctx, &api.DownloadAgentParams{Arch: api.CPUArchitecture(architecture)})
	if err != nil || response.StatusCode != http.StatusOK {
		return nil, answered(response, err, http.StatusOK, nil)
	}
	return response.Body, nil
}

// hostToken is the one that is narrowed to the host, empty before the registration.
func (c *Connection) hostToken() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.host
}

// FirstBoot downloads the first-boot data from a path of the service.
func (c *Connection) FirstBoot(ctx context.Context, path string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	reference, err := url.Parse(path)
	if err != nil || reference.IsAbs() || reference.Host != "" {
		return nil, errors.New("the first-boot data is at a path of the service")
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, c.base.ResolveReference(reference).String(), nil)
	if err != nil {
		return nil, err
	}
	_ = c.authorize(ctx, request)
	response, err := c.http.Do(request)
	if err == nil && response.StatusCode == http.StatusOK {
		defer func() { _ = response.Body.Close() }()
		var data bytes.Buffer
		_, err = data.ReadFrom(io.LimitReader(response.Body, maxFirstBoot+1))
		if err == nil && data.Len() > maxFirstBoot {
			err = &Refusal{Status: http.StatusRequestEntityTooLarge, Reason: fmt.Sprintf("the first-boot data has more than %d bytes", maxFirstBoot)}
		}
		if err != nil {
			return nil, err
		}
		return data.Bytes(), nil
	}
	return nil, answered(response, err, http.StatusOK, nil)
}
