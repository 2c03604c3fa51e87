// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"strings"
	"time"

	"github.com/muster-io/muster/e2e/bench"
)

const (
	consoleStreams = 50
	// consoleReads is how often the first page is asked for, consoleChanges how many changes browsers wait for.
	consoleReads, consoleChanges = 50, 10
	machinesPage                 = "/console/machines"
)

// view is a page as one of the browsers shows it.
type view struct {
	browser int
	page    string
}

// console is many hosts, with browsers that look at the list of machines and read it again when their stream says so.
func console(ctx context.Context, r *bench.Run) (err error) {
	s, err := startSite(ctx, siteConfig{arguments: []string{"-console"}})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	n := r.Scaled(10_000)
	trace, _, err := s.fleet(ctx, "a", n, "-poll="+pollInterval.String(), "-ramp=55s")
	if err != nil {
		return err
	}
	if err := s.settled(ctx, n, 10*time.Minute); err != nil {
		return err
	}
	return s.lookedAt(ctx, r, n, trace)
}

// lookedAt measures pages and changes while machines poll, and how long polls take with and without browsers.
func (s *site) lookedAt(ctx context.Context, r *bench.Run, n int, trace string) error {
	alone := time.Now()
	if err := sleepUntil(ctx, alone.Add(60*time.Second)); err != nil {
		return err
	}
	begin := time.Now()
	jar, err := cookiejar.New(nil)
	if err != nil {
		return err
	}
	browser := &http.Client{Jar: jar, Transport: &http.Transport{MaxIdleConnsPerHost: 2 * consoleStreams}}
	if _, err := s.screen(ctx, browser, "/console/sign-in"); err != nil { // begins a session, as no token is asked for
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	screens := make(chan view, consoleStreams*consoleChanges)
	if err := s.browsers(ctx, browser, screens); err != nil {
		return err
	}
	done, err := r.Profile(ctx, s.service.Process.Pid)
	if err != nil {
		return err
	}
	used, waited := s.effort()
	first, err := s.firstPages(ctx, browser)
	if err != nil {
		return err
	}
	shown, err := s.changes(ctx, screens)
	if err != nil {
		return err
	}
	if err := sleepUntil(ctx, begin.Add(90*time.Second)); err != nil {
		return err
	}
	done()
	polls, err := read(trace)
	if err != nil {
		return err
	}
	took, missing := answered(polls, begin, time.Now())
	before, _ := answered(polls, alone, begin)
	r.Latencies(first, 300)
	r.Figure("change_p50_ms", float64(bench.Percentile(shown, 0.5).Milliseconds()), "ms", bench.NoTarget)
	r.Figure("change_p99_ms", float64(bench.Percentile(shown, 0.99).Milliseconds()), "ms", 1000)
	r.Figure("poll_alone_p50_ms", float64(bench.Percentile(before, 0.5).Milliseconds()), "ms", bench.NoTarget)
	r.Figure("poll_alone_p99_ms", float64(bench.Percentile(before, 0.99).Milliseconds()), "ms", bench.NoTarget)
	r.Figure("poll_p50_ms", float64(bench.Percentile(took, 0.5).Milliseconds()), "ms", bench.NoTarget)
	r.Figure("poll_p99_ms", float64(bench.Percentile(took, 0.99).Milliseconds()), "ms", bench.NoTarget)
	r.Figure("errors", float64(missing), "polls", 0)
	s.effortOf(r, used, waited, float64(len(took)))
	r.Asserted("%d streams showed each of %d changes among %d hosts", consoleStreams, consoleChanges, n)
	return nil
}

// firstPages takes the times of the list of machines, one after the other.
func (s *site) firstPages(ctx context.Context, browser *http.Client) ([]time.Duration, error) {
	took := make([]time.Duration, consoleReads)
	for i := range took {
		at := time.Now()
		if _, err := s.screen(ctx, browser, machinesPage); err != nil {
			return nil, err
		}
		took[i] = time.Since(at)
	}
	return took, nil
}

// screen reads a page.
func (s *site) screen(ctx context.Context, browser *http.Client, path string) (string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url+path, http.NoBody)
	if err != nil {
		return "", err
	}
	response, err := browser.Do(request)
	if err != nil {
		return "", err
	}
	body, err := io.ReadAll(response.Body)
	if err = errors.Join(err, response.Body.Close()); err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("GET %s: %s", path, response.Status)
	}
	return string(body), err
}

// browsers open a stream each, and say what their page shows each time that they read it again.
func (s *site) browsers(ctx context.Context, browser *http.Client, screens chan<- view) error {
	for i := range consoleStreams {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url+"/console/stream", http.NoBody)
		if err != nil {
			return err
		}
		response, err := browser.Do(request)
		if err != nil {
			return err
		}
		if response.StatusCode != http.StatusOK {
			return errors.Join(fmt.Errorf("GET /console/stream: %s", response.Status), response.Body.Close())
		}
		go s.watch(ctx, browser, i, response.Body, screens)
	}
	return nil
}

// watch reads the list of machines again at each event of a stream, as pages do. A page that cannot be read shows nothing new.
func (s *site) watch(ctx context.Context, browser *http.Client, number int, stream io.ReadCloser, screens chan<- view) {
	defer stream.Close() //nolint:errcheck // it is only read
	for lines := bufio.NewScanner(stream); lines.Scan(); {
		if !strings.HasPrefix(lines.Text(), "event: changed") {
			continue
		}
		page, err := s.screen(ctx, browser, machinesPage)
		if err != nil {
			continue
		}
		select {
		case screens <- view{number, page}:
		case <-ctx.Done():
			return
		}
	}
}

// changes gives a host new names, and takes the time from each until the last browser shows it.
func (s *site) changes(ctx context.Context, screens <-chan view) ([]time.Duration, error) {
	var hosts []object
	if err := s.call(ctx, http.MethodGet, "/hosts?limit=1", nil, &hosts); err != nil {
		return nil, err
	}
	if len(hosts) == 0 {
		return nil, errors.New("there are no hosts")
	}
	var shown []time.Duration
	for i := range consoleChanges {
		name := fmt.Sprintf("changed-%d", i)
		begin := time.Now()
		if err := s.call(ctx, http.MethodPatch, "/infra-envs/"+s.infraEnv+"/hosts/"+hosts[0].ID, map[string]string{"host_name": name}, nil); err != nil {
			return nil, err
		}
		for seen := map[int]bool{}; len(seen) < consoleStreams; {
			select {
			case v := <-screens:
				if strings.Contains(v.page, ">"+name+"<") && !seen[v.browser] {
					seen[v.browser] = true
					shown = append(shown, time.Since(begin))
				}
			case <-time.After(time.Minute):
				return nil, fmt.Errorf("%d of %d streams showed %s within a minute", len(seen), consoleStreams, name)
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
	}
	return shown, nil
}
