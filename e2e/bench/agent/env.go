// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package agent holds the benchmarks of agent-service. The service and generated machines are processes of their own; they meet over HTTP.
package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/muster-io/muster/apis/porttest"
	"github.com/muster-io/muster/e2e/bench"
	"github.com/muster-io/muster/e2e/checkout"
	"github.com/muster-io/muster/e2e/environment"
)

const base = "/api/assisted-install/v2"

// site is a running service and what it is started with.
type site struct {
	dir, url, metrics string
	arguments         []string
	service           *exec.Cmd
	fleets            []*exec.Cmd
	infraEnv          string
	client            *http.Client
	// hub is nil where there is no Kubernetes, and postgres where the service keeps its data in a file.
	hub      *hub
	postgres *exec.Cmd
}

// siteConfig is the configuration of a site.
type siteConfig struct {
	kube, postgres bool
	// arguments are flags of the service beside the usual ones.
	arguments []string
}

// startSite starts a service on an empty database, with one infra-env.
func startSite(ctx context.Context, with siteConfig) (*site, error) {
	dir, err := os.MkdirTemp("", "muster-bench-agent-")
	if err != nil {
		return nil, err
	}
	s := &site{dir: dir, client: &http.Client{Timeout: time.Minute, Transport: &http.Transport{MaxIdleConnsPerHost: 1000}}}
	if err := s.make(ctx, with); err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

func (s *site) make(ctx context.Context, with siteConfig) error {
	listen, err := porttest.Find()
	if err != nil {
		return err
	}
	metrics, err := porttest.Find()
	if err != nil {
		return err
	}
	s.url, s.metrics = "http://127.0.0.1:"+listen, "http://127.0.0.1:"+metrics
	database := filepath.Join(s.dir, "a.db")
	if with.postgres {
		if database, s.postgres, err = environment.StartPostgres(ctx, s.dir); err != nil {
			return err
		}
	}
	s.arguments = append([]string{
		"-listen=127.0.0.1:" + listen, "-base-url=" + s.url, "-metrics-bind-address=127.0.0.1:" + metrics, "-database=" + database, "-token-key=" + filepath.Join(s.dir, "a.key"), "-live-image-cache=" + filepath.Join(s.dir, "live-images"), "-log-level=error",
	}, with.arguments...)
	if !with.kube {
		if err := s.start(ctx); err != nil {
			return err
		}
		var env object
		err := s.call(ctx, http.MethodPost, "/infra-envs", map[string]string{"name": "bench", "pull_secret": `{"auths":{}}`}, &env) //nolint:gosec // it opens nothing
		s.infraEnv = env.ID
		return err
	}
	if s.hub, err = startHub(ctx); err != nil {
		return err
	}
	s.arguments = append(s.arguments, "-kube-api", "-kubeconfig="+s.hub.kubeconfig)
	if s.infraEnv, err = s.hub.infraEnv(ctx); err != nil {
		return err
	}
	if err := s.start(ctx); err != nil {
		return err
	}
	return s.known(ctx)
}

// start runs the service and waits until it is ready.
func (s *site) start(ctx context.Context) error {
	var err error
	if s.service, err = s.run(ctx, "agent-service", s.arguments...); err != nil {
		return err
	}
	return await(ctx, 2*time.Minute, func() (string, error) {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url+"/readyz", http.NoBody)
		if err != nil {
			return "", err
		}
		response, err := s.client.Do(request)
		if err != nil {
			return "the service does not answer", nil //nolint:nilerr // it is asked again
		}
		if response.StatusCode != http.StatusOK {
			return "the service is not ready", response.Body.Close()
		}
		return "", response.Body.Close()
	})
}

// run starts a process of the checkout's bin that ends with this one.
func (s *site) run(ctx context.Context, name string, arguments ...string) (*exec.Cmd, error) {
	binary, err := checkout.Path("bin", name)
	if err != nil {
		return nil, err
	}
	log, err := os.OpenFile(filepath.Join(s.dir, name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, binary, arguments...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return cmd, errors.Join(cmd.Start(), log.Close())
}

// fleet starts generated machines and returns the file of their trace.
func (s *site) fleet(ctx context.Context, seed string, machines int, arguments ...string) (string, *exec.Cmd, error) {
	trace := filepath.Join(s.dir, seed+".trace")
	cmd, err := s.run(ctx, "agent", append([]string{
		"-url=" + s.url, "-infra-env-id=" + s.infraEnv, "-simulate=" + strconv.Itoa(machines), "-seed=" + seed, "-trace=" + trace,
	}, arguments...)...)
	if err == nil {
		s.fleets = append(s.fleets, cmd)
	}
	return trace, cmd, err
}

func kill(cmd *exec.Cmd) {
	if cmd != nil && cmd.Process != nil && cmd.ProcessState == nil {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
}

// close ends everything. It shows the log of a failed service.
func (s *site) close() error {
	for _, fleet := range s.fleets {
		kill(fleet)
	}
	kill(s.service)
	kill(s.postgres)
	var err error
	if s.hub != nil {
		err = s.hub.close()
	}
	said, _ := os.ReadFile(filepath.Join(s.dir, "agent-service.log"))
	err = errors.Join(err, os.RemoveAll(s.dir))
	if len(said) > 0 {
		err = errors.Join(err, fmt.Errorf("the service logged errors: %.2000s", said))
	}
	return err
}

// object is what the benchmarks read of infra-envs, clusters and hosts.
type object struct {
	ID        string `json:"id"`
	ClusterID string `json:"cluster_id"`
	Status    string `json:"status"`
	// CheckedInAt is when the host last contacted the service.
	CheckedInAt     time.Time `json:"checked_in_at"`
	StatusUpdatedAt time.Time `json:"status_updated_at"`
}

func (s *site) call(ctx context.Context, method, path string, body, into any) error {
	content, err := json.Marshal(body)
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, method, s.url+base+path, bytes.NewReader(content))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := s.client.Do(request)
	if err != nil {
		return err
	}
	answer, err := io.ReadAll(response.Body)
	if err = errors.Join(err, response.Body.Close()); err != nil {
		return err
	}
	if response.StatusCode >= http.StatusBadRequest {
		return fmt.Errorf("%s %s: %s: %s", method, path, response.Status, answer)
	}
	if into == nil {
		return nil
	}
	return json.Unmarshal(answer, into)
}

// hosts reads all hosts.
func (s *site) hosts(ctx context.Context) ([]object, error) {
	var all []object
	err := s.call(ctx, http.MethodGet, "/infra-envs/"+s.infraEnv+"/hosts", nil, &all)
	return all, err
}

// settled waits until n hosts are free and valid. It reads what is measured all the time: whole hosts would keep the service busy.
func (s *site) settled(ctx context.Context, n int, limit time.Duration) error {
	return await(ctx, limit, func() (string, error) {
		free, err := s.count(ctx, "agent_service_hosts", `state="known-unbound"`)
		if err != nil || int(free) >= n {
			return "", err
		}
		return fmt.Sprintf("%.0f of %d hosts are known", free, n), nil
	})
}

func (s *site) clusters(ctx context.Context, n int) ([]string, error) {
	ids := make([]string, n)
	for i := range ids {
		var c object
		if err := s.call(ctx, http.MethodPost, "/clusters", map[string]string{"name": fmt.Sprintf("c%d", i), "openshift_version": "4.20", "pull_secret": `{"auths":{}}`}, &c); err != nil { //nolint:gosec // it opens nothing
			return nil, err
		}
		ids[i] = c.ID
	}
	return ids, nil
}

// await asks ten times a second, and fails with what is missing after limit.
func await(ctx context.Context, limit time.Duration, missing func() (string, error)) error {
	return awaitEach(ctx, 100*time.Millisecond, limit, missing)
}

// awaitEach is await with another interval.
func awaitEach(ctx context.Context, interval, limit time.Duration, missing func() (string, error)) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		what, err := missing()
		if err != nil || what == "" {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("after %s still: %s", limit, what)
		case <-tick.C:
		}
	}
}

// instructed is when a machine got instructions.
type instructed struct {
	Host  string        `json:"host"`
	At    int64         `json:"at"`
	Took  time.Duration `json:"took"`
	Steps []string      `json:"steps"`
}

// read reads a trace.
func read(path string) ([]instructed, error) { return (&tail{path: path}).next() }

// tail reads each line that is written to a file once: reading the whole file again would take time from what is measured.
type tail struct {
	path   string
	offset int64
}

// tailOf leaves out what the file holds already.
func tailOf(path string) (*tail, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	return &tail{path: path, offset: info.Size()}, nil
}

// next reads the lines that were written since the last call; one that is being written is read later.
func (t *tail) next() ([]instructed, error) {
	file, err := os.Open(t.path)
	if err != nil {
		return nil, err
	}
	text, err := io.ReadAll(io.NewSectionReader(file, t.offset, math.MaxInt64-t.offset))
	if err = errors.Join(err, file.Close()); err != nil {
		return nil, err
	}
	text = text[:bytes.LastIndexByte(text, '\n')+1]
	t.offset += int64(len(text))
	var lines []instructed
	for line := range bytes.Lines(text) {
		var one instructed
		if json.Unmarshal(line, &one) == nil {
			lines = append(lines, one)
		}
	}
	return lines, nil
}

// scrape reads the service's metrics.
func (s *site) scrape(ctx context.Context) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.metrics+"/metrics", http.NoBody)
	if err != nil {
		return nil, err
	}
	response, err := s.client.Do(request)
	if err != nil {
		return nil, err
	}
	text, err := io.ReadAll(response.Body)
	return text, errors.Join(err, response.Body.Close())
}

// requests are the service's to the Kubernetes API.
func (s *site) requests(ctx context.Context) (bench.Requests, error) {
	text, err := s.scrape(ctx)
	if err != nil {
		return nil, err
	}
	return bench.ReadRequests(text, environment.AgentService().Name)
}

// count reads one of the service's metrics, summed over its labels, or over those that have a label.
func (s *site) count(ctx context.Context, name string, labels ...string) (float64, error) {
	text, err := s.scrape(ctx)
	if err != nil {
		return 0, err
	}
	found := regexp.MustCompile(`(?m)^`+name+`(\{[^}]*\})? (\S+)$`).FindAllSubmatch(text, -1)
	if found == nil {
		return 0, fmt.Errorf("the service has no metric %s", name)
	}
	var sum float64
	for _, match := range found {
		if slices.ContainsFunc(labels, func(label string) bool { return !strings.Contains(string(match[1]), label) }) {
			continue
		}
		value, err := strconv.ParseFloat(string(match[2]), 64)
		if err != nil {
			return 0, err
		}
		sum += value
	}
	return sum, nil
}

// effort says what the service has used of processors, and how long it has waited for them beside others.
func (s *site) effort() (used, waited time.Duration) {
	tasks, _ := filepath.Glob("/proc/" + strconv.Itoa(s.service.Process.Pid) + "/task/*/schedstat")
	for _, task := range tasks {
		var ran, queued int64
		if text, err := os.ReadFile(task); err == nil {
			_, _ = fmt.Sscan(string(text), &ran, &queued)
		}
		used, waited = used+time.Duration(ran), waited+time.Duration(queued)
	}
	return used, waited
}

// effortOf notes what an operation cost the service.
func (s *site) effortOf(r *bench.Run, used, waited time.Duration, operations float64) {
	usedNow, waitedNow := s.effort()
	r.Figure("cpu_ms_per_op", float64((usedNow-used).Microseconds())/1000/operations, "ms", bench.NoTarget)
	r.Figure("cpu_wait_ms_per_op", float64((waitedNow-waited).Microseconds())/1000/operations, "ms that its threads waited for a processor", bench.NoTarget)
}

// rss is the service's memory now, in KiB.
func (s *site) rss() (float64, error) {
	status, err := os.ReadFile("/proc/" + strconv.Itoa(s.service.Process.Pid) + "/status")
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(status)) {
		var kib int
		if n, _ := fmt.Sscanf(line, "VmRSS: %d kB", &kib); n == 1 {
			return float64(kib), nil
		}
	}
	return 0, errors.New("the system does not tell the memory of the service")
}
