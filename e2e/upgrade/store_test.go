// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package upgrade_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"path/filepath"

	"github.com/muster-io/muster/e2e/environment"
)

// store is the etcd of a local control plane, through the JSON form of its interface: what an API server stored is moved with its UIDs and as the
// bytes that it is.
type store struct{ client *http.Client }

func openStore(local *environment.Local) store {
	socket := filepath.Join(local.Dir, "controlplane", "run", "etcd.sock")
	return store{&http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}}}}
}

// entry is one stored object. JSON keeps both in base64.
type entry struct {
	Key   []byte `json:"key"`
	Value []byte `json:"value"`
}

func (s store) call(ctx context.Context, method string, request, answer any) error {
	body, err := json.Marshal(request)
	if err != nil {
		return err
	}
	post, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://etcd/v3/kv/"+method, bytes.NewReader(body))
	if err != nil {
		return err
	}
	response, err := s.client.Do(post)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("etcd answers %s to %s", response.Status, method)
	}
	return json.NewDecoder(response.Body).Decode(answer)
}

// read returns the objects whose keys begin with a prefix that ends in a slash.
func (s store) read(ctx context.Context, prefix string) ([]entry, error) {
	var found struct {
		Entries []entry `json:"kvs"`
	}
	end := prefix[:len(prefix)-1] + "0" // the next byte after the slash
	err := s.call(ctx, "range", map[string][]byte{"key": []byte(prefix), "range_end": []byte(end)}, &found)
	return found.Entries, err
}

func (s store) write(ctx context.Context, e entry) error {
	return s.call(ctx, "put", e, &struct{}{})
}
