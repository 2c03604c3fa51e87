// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/muster-io/muster/agent-service/api"
)

// Version is set when the agent is built.
var Version = "dev"

// settings are what the command line, the environment (AGENT_URL …) and the kernel's command line (muster.url=…) say, in this order of weight.
type settings struct {
	url, infraEnv, token, tokenFile, caFile, ca, pullSecretFile, restart, hostID, hostFile string
	insecure, verbose, version, resident                                                   bool

	simulate       int
	seed           string
	poll, ramp     time.Duration
	boot           time.Duration
	trace          string
	firstBoot      string
	report, detail string
}

// Main is the agent's command line.
func Main(ctx context.Context, arguments []string, out io.Writer) error {
	s, err := parse(arguments, out, content("/proc/cmdline"))
	if err != nil {
		return err
	}
	if s.version {
		_, err := fmt.Fprintln(os.Stdout, Version)
		return err
	}
	level := zapcore.InfoLevel
	if s.verbose {
		level = zapcore.DebugLevel
	} else if s.simulate > 0 {
		level = zapcore.WarnLevel
	}
	said := &tail{}
	log := zap.New(zapcore.NewCore(zapcore.NewJSONEncoder(zap.NewProductionEncoderConfig()), zapcore.Lock(zapcore.AddSync(io.MultiWriter(out, said))), level))
	transport, err := s.transport()
	if err != nil {
		return err
	}
	infraEnv, err := uuid.Parse(s.infraEnv)
	if err != nil {
		return errors.New("--infra-env-id is the id of the infra-env, a UUID")
	}
	if s.simulate > 0 {
		return s.fleet(ctx, infraEnv, transport, log)
	}
	return s.single(ctx, infraEnv, transport, log, said)
}

func parse(arguments []string, out io.Writer, kernel string) (*settings, error) {
	s := &settings{}
	flags := flag.NewFlagSet("agent", flag.ContinueOnError)
	flags.SetOutput(out)
	text := func(into *string, name, usage string) {
		flags.StringVar(into, name, preset(name, kernel), usage)
	}
	text(&s.url, "url", "URL of the service")
	text(&s.infraEnv, "infra-env-id", "infra-env that this machine belongs to")
	text(&s.token, "token", "token of the discovery image; better in a file")
	text(&s.tokenFile, "token-file", "file that holds the token")
	text(&s.caFile, "ca-file", "PEM certificates that the service is trusted by, beside the system's")
	text(&s.pullSecretFile, "pull-secret-file", "credentials of registries, as a docker config.json")
	text(&s.restart, "restart-command", "command that restarts the machine, instead of the kernel's own way")
	text(&s.hostID, "host-id", "host id, instead of the machine's own")
	text(&s.hostFile, "host-file", "file of an installed system that first-boot data wrote (/etc/muster/host.json): URL, infra-env, host id and token")
	flags.BoolVar(&s.insecure, "insecure", preset("insecure", kernel) == "true", "trust any certificate")
	flags.BoolVar(&s.verbose, "verbose", false, "log more")
	flags.BoolVar(&s.version, "version", false, "print the version and exit")
	flags.BoolVar(&s.resident, "resident", false, "run as the agent of an installed system, with --host-file: ask for instructions, and restart into the discovery image when the host is released")
	flags.StringVar(&s.report, "report", "", "report a stage of the installation of this host (Configuring, Joined, Done, Failed) and exit")
	flags.StringVar(&s.detail, "detail", "", "text of the progress report of --report")
	flags.IntVar(&s.simulate, "simulate", 0, "run this many generated machines instead of this one")
	flags.StringVar(&s.seed, "seed", "a", "tells fleets of generated machines apart")
	flags.DurationVar(&s.poll, "poll", 0, "time between polls of generated machines; 0 holds polls")
	flags.DurationVar(&s.ramp, "ramp", 0, "time over which generated machines start")
	flags.DurationVar(&s.boot, "boot", time.Second, "time that a generated machine takes to restart")
	flags.StringVar(&s.trace, "trace", "", "file to which generated machines write their instructions: JSON lines of host, at and took (ns), steps")
	flags.StringVar(&s.firstBoot, "first-boot-dir", "", "directory in which generated machines keep the first-boot data that they are installed with: <host id>.ign")
	if err := flags.Parse(arguments); err != nil {
		return nil, err
	}
	if s.hostFile != "" {
		if err := s.readHost(); err != nil {
			return nil, err
		}
	}
	if s.tokenFile != "" {
		token, err := os.ReadFile(s.tokenFile)
		if err != nil {
			return nil, fmt.Errorf("reading the token: %w", err)
		}
		s.token = strings.TrimSpace(string(token))
	}
	return s, nil
}

// readHost takes what first-boot data says of this host.
func (s *settings) readHost() error {
	file, err := os.ReadFile(s.hostFile)
	if err != nil {
		return fmt.Errorf("reading what this host is: %w", err)
	}
	var host struct {
		URL      string `json:"service_url"`
		InfraEnv string `json:"infra_env_id"`
		Host     string `json:"host_id"`
		Token    string `json:"token"`
		CA       string `json:"ca"`
		HTTP     string `json:"http_proxy"`
		HTTPS    string `json:"https_proxy"`
		NoProxy  string `json:"no_proxy"`
	}
	if err := json.Unmarshal(file, &host); err != nil {
		return fmt.Errorf("reading what this host is: %s is no JSON object of strings", s.hostFile)
	}
	s.url, s.infraEnv, s.hostID, s.token, s.ca = host.URL, host.InfraEnv, host.Host, host.Token, host.CA
	for name, value := range map[string]string{"HTTP_PROXY": host.HTTP, "HTTPS_PROXY": host.HTTPS, "NO_PROXY": host.NoProxy} {
		if value == "" {
			continue
		}
		if err := os.Setenv(name, value); err != nil {
			return fmt.Errorf("using the proxy: %w", err)
		}
	}
	return nil
}

// preset is what the environment says, else the kernel's command line.
func preset(name, kernel string) string {
	if value := os.Getenv("AGENT_" + strings.ToUpper(strings.ReplaceAll(name, "-", "_"))); value != "" {
		return value
	}
	for word := range strings.FieldsSeq(kernel) {
		if value, found := strings.CutPrefix(word, "muster."+name+"="); found {
			return value
		}
	}
	return ""
}

func (s *settings) transport() (*http.Client, error) {
	trust := &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: s.insecure} //nolint:gosec // only where the user says so
	if s.caFile != "" {
		pem, err := os.ReadFile(s.caFile)
		if err != nil {
			return nil, fmt.Errorf("reading the certificates: %w", err)
		}
		s.ca += string(pem)
	}
	if s.ca != "" {
		var err error
		if trust.RootCAs, err = x509.SystemCertPool(); err != nil {
			trust.RootCAs = x509.NewCertPool()
		}
		if !trust.RootCAs.AppendCertsFromPEM([]byte(s.ca)) {
			return nil, errors.New("the trusted CA holds no certificate")
		}
	}
	return &http.Client{Transport: &http.Transport{
		Proxy: http.ProxyFromEnvironment, TLSClientConfig: trust, MaxIdleConnsPerHost: max(4, s.simulate), IdleConnTimeout: 90 * time.Second,
		TLSHandshakeTimeout: 10 * time.Second, DialContext: (&net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second}).DialContext,
	}}, nil
}

func (s *settings) single(ctx context.Context, infraEnv uuid.UUID, transport *http.Client, log *zap.Logger, said *tail) error {
	machine := &Real{Client: transport, Log: said, RestartCommand: strings.Fields(s.restart), Sys: "/sys"}
	if s.hostID != "" {
		id, err := uuid.Parse(s.hostID)
		if err != nil {
			return errors.New("--host-id is a UUID")
		}
		machine.HostID = id
	}
	if s.pullSecretFile != "" {
		machine.PullSecret = content(s.pullSecretFile)
	}
	connection, err := NewConnection(s.url, infraEnv, s.token, transport)
	if err != nil {
		return err
	}
	if token := os.Getenv(hostTokenVariable); token != "" {
		connection.use(token)
		_ = os.Unsetenv(hostTokenVariable) // it is not for the programs that this one starts
	}
	a := New(Options{Connection: connection, Machine: machine, Version: Version, Log: log})
	if s.resident && s.hostID != "" {
		a.identity.HostID = machine.HostID
		return a.Reside(ctx)
	}
	if s.report == "" {
		err := a.Run(ctx)
		if errors.Is(err, errReplaced) {
			log.Info("another agent takes over")
			return machine.takeOver(connection.hostToken())
		}
		return err
	}
	if a.identity.HostID = machine.HostID; s.hostID == "" {
		if a.identity, err = machine.Identity(ctx); err != nil {
			return err
		}
	}
	return insist(ctx, func() error { return a.Connection.Progress(ctx, a.identity.HostID, api.HostStage(s.report), s.detail) })
}

// fleet runs generated machines until ctx ends or all of them are installed.
func (s *settings) fleet(ctx context.Context, infraEnv uuid.UUID, transport *http.Client, log *zap.Logger) error {
	onInstructions, done, err := s.tracer()
	if err != nil {
		return err
	}
	defer done()
	var machines sync.WaitGroup
	for n := range s.simulate {
		connection, err := NewConnection(s.url, infraEnv, s.token, transport)
		if err != nil {
			return err
		}
		machine := &Generated{Seed: s.seed, Number: n, Client: transport, Connection: connection, PowerOn: rand.Text()[:8] + "-", BootTime: s.boot, Reside: s.resident, FirstBootDir: s.firstBoot}
		machines.Go(func() {
			if pause(ctx, s.ramp*time.Duration(n)/time.Duration(s.simulate)) != nil {
				return
			}
			a := New(Options{Connection: connection, Machine: machine, Version: Version, Interval: s.poll, OnInstructions: onInstructions, Log: log})
			if err := a.Run(ctx); err != nil && ctx.Err() == nil {
				log.Error("a generated machine ended", zap.Stringer("host", machine.HostID()), zap.Error(err))
			}
		})
	}
	machines.Wait()
	return ctx.Err()
}

// tracer writes the instructions of machines to the trace file.
func (s *settings) tracer() (onInstructions func(uuid.UUID, []api.Step, time.Duration), done func(), err error) {
	if s.trace == "" {
		return nil, func() {}, nil
	}
	file, err := os.Create(s.trace)
	if err != nil {
		return nil, nil, fmt.Errorf("writing the trace: %w", err)
	}
	var mu sync.Mutex
	encoder := json.NewEncoder(file)
	onInstructions = func(host uuid.UUID, steps []api.Step, took time.Duration) {
		types := make([]string, 0, len(steps))
		for _, step := range steps {
			types = append(types, string(step.StepType))
		}
		mu.Lock()
		defer mu.Unlock()
		_ = encoder.Encode(map[string]any{"host": host, "at": time.Now().UnixNano(), "took": took, "steps": types})
	}
	return onInstructions, func() { _ = file.Close() }, nil
}
