// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strconv"
	"sync"
	"time"

	"github.com/muster-io/muster/e2e/bench"
	"github.com/muster-io/muster/e2e/ironic"
)

// proxied is a real Ironic. Where its requests are noted or delayed, there is a proxy before it; elsewhere it is asked directly, because the work of a proxy
// would count as the operator's.
type proxied struct {
	real *ironic.Ironic
	// endpoint and inspector are those of the proxies, or its own.
	endpoint, inspector string
	proxies             []*httptest.Server
	mu                  sync.Mutex
	asked               []*url.URL
}

// startIronic starts an Ironic with the machines of the load.
func startIronic(ctx context.Context, n int, l load) (*proxied, error) {
	instance, err := ironic.New()
	if err != nil {
		return nil, err
	}
	i := &proxied{real: instance}
	for _, step := range [][]string{{"up"}, {"enroll", "1", "1"}, {"down"}, {"seed", strconv.Itoa(n - 1)}, {"up"}} {
		if n == 1 && step[0] == "seed" {
			continue
		}
		if _, err := instance.Run(ctx, "", step[0], step[1:]...); err != nil {
			i.close(ctx)
			return nil, err
		}
	}
	i.endpoint, i.inspector = instance.Endpoint, instance.Inspector
	if l.noted || l.delay > 0 {
		i.endpoint, i.inspector = i.behind(i.endpoint, true, l.delay), i.behind(i.inspector, false, l.delay)
	}
	return i, nil
}

// behind puts a proxy before an endpoint. Its requests are delayed, and recorded where wanted.
func (i *proxied) behind(endpoint string, noted bool, delay time.Duration) string {
	target, err := url.Parse(endpoint)
	if endpoint == "" || err != nil {
		return endpoint
	}
	target.Path = ""
	proxy := httputil.NewSingleHostReverseProxy(target)
	proxy.Transport = &http.Transport{MaxIdleConnsPerHost: 2 * fetchers} // one connection for each that asks, as without a proxy
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if noted {
			i.mu.Lock()
			i.asked = append(i.asked, r.URL)
			i.mu.Unlock()
		}
		select {
		case <-r.Context().Done():
			return
		case <-time.After(delay):
		}
		proxy.ServeHTTP(w, r)
	}))
	i.proxies = append(i.proxies, server)
	return server.URL + "/v1/"
}

// taken returns what Ironic was asked since the last call.
func (i *proxied) taken() []*url.URL {
	i.mu.Lock()
	defer i.mu.Unlock()
	asked := i.asked
	i.asked = nil
	return asked
}

// readAll reads what the operator does of machines that it does not know, with nothing beside it: nodes and ports page by page, then the inventories, as
// many at a time as the operator. It returns how long that takes.
func (i *proxied) readAll(ctx context.Context) (time.Duration, error) {
	started := time.Now()
	nodes, err := i.list(ctx, "nodes", "uuid,name,driver,provision_state,last_error,instance_uuid,reservation,inspection_finished_at")
	if err != nil {
		return 0, err
	}
	if _, err := i.list(ctx, "ports", "uuid,address,node_uuid,pxe_enabled"); err != nil {
		return 0, err
	}
	inventory := bench.Kind{Verb: "get", Resource: "inventories"}
	_, err = bench.Bare{
		Writers: fetchers, Items: len(nodes), Writes: map[bench.Kind]int{inventory: len(nodes)}, Order: []bench.Kind{inventory},
		Write: func(ctx context.Context, _ bench.Kind, item, _ int) error {
			address := i.endpoint + "nodes/" + nodes[item] + "/inventory"
			if i.inspector != "" {
				address = i.inspector + "introspection/" + nodes[item] + "/data"
			}
			var ignored json.RawMessage
			return i.get(ctx, address, &ignored)
		},
	}.Run(ctx)
	return time.Since(started), err
}

// list reads all pages of nodes or ports, and returns their UUIDs.
func (i *proxied) list(ctx context.Context, what, fields string) (uuids []string, err error) {
	query := url.Values{"fields": {fields}, "limit": {"1000"}}
	for {
		var page map[string]json.RawMessage
		if err := i.get(ctx, i.endpoint+what+"?"+query.Encode(), &page); err != nil {
			return nil, err
		}
		var rows []struct {
			UUID string `json:"uuid"`
		}
		if err := json.Unmarshal(page[what], &rows); err != nil {
			return nil, fmt.Errorf("listing %s: %w", what, err)
		}
		for _, r := range rows {
			uuids = append(uuids, r.UUID)
		}
		if page["next"] == nil || len(rows) == 0 {
			return uuids, nil
		}
		query.Set("marker", uuids[len(uuids)-1])
	}
}

// reader keeps as many connections as the operator.
var reader = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 2 * fetchers}}

// get asks Ironic and decodes the answer.
func (i *proxied) get(ctx context.Context, address string, out any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, http.NoBody)
	if err != nil {
		return fmt.Errorf("asking Ironic: %w", err)
	}
	req.Header.Set("X-OpenStack-Ironic-API-Version", "1.81")
	resp, err := reader.Do(req)
	if err != nil {
		return fmt.Errorf("asking Ironic: %w", err)
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("asking Ironic for %s: %s", req.URL.Path, resp.Status)
	}
	if err := json.NewDecoder(resp.Body).Decode(out); err != nil {
		return fmt.Errorf("asking Ironic for %s: %w", req.URL.Path, err)
	}
	return nil
}

// close ends Ironic, also when the benchmark was interrupted.
func (i *proxied) close(ctx context.Context) {
	for _, p := range i.proxies {
		p.Close()
	}
	i.real.Close(ctx)
}
