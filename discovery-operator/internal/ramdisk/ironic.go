// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package ramdisk

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"
)

const (
	// apiVersion has agent_verify_ca in heartbeats, and reportVersion has continue_inspection; Ironic's inspector ignores it.
	apiVersion, reportVersion = "1.68", "1.84"
	// protocol is the version of ironic-python-agent whose protocol is spoken.
	protocol = "9.4.0"
	maxReply = 1 << 20
	// requestTimeout bounds one request to Ironic.
	requestTimeout = 30 * time.Second
)

// errMasked says that Ironic has given the token of the node before, and gives it once.
var errMasked = errors.New("the token of this node was given before: Ironic gives a new one when it restarts the machine")

// refusal is an answer of Ironic with a status of 400 or more.
type refusal struct {
	status int
	text   string
}

func (r refusal) Error() string { return fmt.Sprintf("the server answers %d: %s", r.status, r.text) }

// client calls the endpoints of Ironic that are for ramdisks, which take no credentials.
type client struct {
	http           *http.Client
	ironic, report string
}

// node is what Ironic says about the machine.
type node struct {
	uuid, token string
	heartbeat   time.Duration
}

// post sends the report. The UUID is empty where the answer has none.
func (c client) post(ctx context.Context, r report) (string, error) {
	var answer struct {
		UUID string `json:"uuid"`
		Node struct {
			UUID string `json:"uuid"`
		} `json:"node"`
	}
	if err := c.call(ctx, http.MethodPost, c.report, reportVersion, r.members, &answer); err != nil {
		return "", fmt.Errorf("reporting the hardware: %w", err)
	}
	if answer.UUID != "" {
		return answer.UUID, nil
	}
	return answer.Node.UUID, nil
}

// lookup asks which node the machine is. It fails with errMasked where another process has the token.
func (c client) lookup(ctx context.Context, uuid string, macs []string) (node, error) {
	query := url.Values{"addresses": {strings.Join(macs, ",")}}
	if uuid != "" {
		query.Set("node_uuid", uuid)
	}
	var answer struct {
		Node struct {
			UUID string `json:"uuid"`
		} `json:"node"`
		Config struct {
			Token     string `json:"agent_token"`
			Heartbeat int    `json:"heartbeat_timeout"`
		} `json:"config"`
	}
	if err := c.call(ctx, http.MethodGet, c.at("lookup")+"?"+query.Encode(), apiVersion, nil, &answer); err != nil {
		return node{}, fmt.Errorf("looking the machine up: %w", err)
	}
	n := node{uuid: answer.Node.UUID, token: answer.Config.Token, heartbeat: time.Duration(answer.Config.Heartbeat) * time.Second}
	switch {
	case n.uuid == "":
		return node{}, errors.New("looking the machine up: the answer has no node")
	case n.token == "" || strings.Contains(n.token, "*"):
		return n, errMasked
	}
	return n, nil
}

// heartbeat tells where the agent can be called, and by which certificate it is known.
func (c client) heartbeat(ctx context.Context, n node, callback, certificate string) error {
	body := map[string]any{"callback_url": callback, "agent_version": protocol, "agent_token": n.token}
	if certificate != "" {
		body["agent_verify_ca"] = certificate
	}
	if err := c.call(ctx, http.MethodPost, c.at("heartbeat")+"/"+n.uuid, apiVersion, body, nil); err != nil {
		return fmt.Errorf("sending a heartbeat: %w", err)
	}
	return nil
}

// at is the URL of an endpoint; the version is added where the URL of Ironic has none.
func (c client) at(name string) string {
	base := strings.TrimRight(c.ironic, "/")
	return strings.TrimSuffix(base, "/v1") + "/v1/" + name
}

func (c client) call(ctx context.Context, method, address, version string, body, out any) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	var content io.Reader = http.NoBody
	if body != nil {
		data, err := json.Marshal(body)
		if err != nil {
			return err
		}
		content = bytes.NewReader(data)
	}
	req, err := http.NewRequestWithContext(ctx, method, address, content)
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("X-OpenStack-Ironic-API-Version", version)
	resp, err := c.http.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxReply))
	if err != nil {
		return err
	}
	if resp.StatusCode >= http.StatusBadRequest {
		return refusal{resp.StatusCode, strings.TrimSpace(string(data[:min(len(data), 500)]))}
	}
	if out == nil || len(data) == 0 {
		return nil
	}
	if err := json.Unmarshal(data, out); err != nil {
		return fmt.Errorf("reading the answer: %w", err)
	}
	return nil
}
