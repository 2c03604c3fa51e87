// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package httpapi_test

import (
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/muster-io/muster/agent-service/api"
)

// strange are malformed values that a client may send.
var strange = []any{
	nil, "", " ", "\x00", "a\x00b", "\\u0000", "'; DROP TABLE hosts; --", "../../etc/passwd", "{}", "[]", "null", "\u202e", strings.Repeat("a", 300), strings.Repeat("ä", 70000), -1, 0, 1, 1e18, 1e300, 0.5, true, false,
	[]any{}, []any{nil}, map[string]any{}, map[string]any{"a": nil}, "10.0.0.0/33", "10.0.0.0/8", "fe80::/10", "x86_64", "auto-assign", "install", "inventory", "info", "Done", "2026-01-01T00:00:00Z",
	uuid.Nil.String(), "not-a-uuid", `{"disks":null}`, `{"disks":[{"size_bytes":-1}]}`, `{"hostname":7}`, `{"ntp_sources":[{}]}`, `{"ntp_source":`, strings.Repeat("[", 20000), "a=b", "kubeconfig", "discovery.ign",
}

// walker makes requests from the description of the interface: some right, most wrong somewhere.
type walker struct {
	random *rand.Rand
	ids    map[string][]string
}

func (k *walker) value(schema *openapi3.SchemaRef, depth int) any {
	if schema == nil || schema.Value == nil || depth > 4 || k.random.IntN(4) == 0 {
		return strange[k.random.IntN(len(strange))]
	}
	s := schema.Value
	switch {
	case len(s.AllOf) > 0:
		return k.value(s.AllOf[0], depth)
	case len(s.Enum) > 0:
		return s.Enum[k.random.IntN(len(s.Enum))]
	case s.Type.Is("object"):
		object := map[string]any{}
		for name, property := range s.Properties {
			if slices.Contains(s.Required, name) && k.random.IntN(10) > 0 || k.random.IntN(3) == 0 {
				object[name] = k.named(name, property, depth+1)
			}
		}
		return object
	case s.Type.Is("array"):
		list := []any{}
		for range k.random.IntN(3) {
			list = append(list, k.value(s.Items, depth+1))
		}
		return list
	case s.Type.Is("boolean"):
		return k.random.IntN(2) == 0
	case s.Type.Is("integer"):
		return k.random.IntN(100)
	}
	return "name" + uuid.NewString()[:4]
}

func (k *walker) named(name string, schema *openapi3.SchemaRef, depth int) any {
	if known := k.ids[name]; len(known) > 0 && k.random.IntN(4) > 0 {
		return known[k.random.IntN(len(known))]
	}
	return k.value(schema, depth)
}

func (k *walker) request(path, method string, item *openapi3.PathItem, operation *openapi3.Operation) *http.Request {
	query := url.Values{}
	for _, p := range append(slices.Clone(item.Parameters), operation.Parameters...) {
		raw, err := json.Marshal(k.named(p.Value.Name, p.Value.Schema, 0))
		if err != nil {
			continue
		}
		text := strings.Trim(string(raw), `"`)
		switch {
		case p.Value.In == "path":
			path = strings.ReplaceAll(path, "{"+p.Value.Name+"}", url.PathEscape(text[:min(len(text), 1000)]))
		case p.Value.In == "query" && (p.Value.Required || k.random.IntN(2) == 0):
			query.Set(p.Value.Name, text[:min(len(text), 1000)])
		}
	}
	var body []byte
	if operation.RequestBody != nil {
		for _, media := range operation.RequestBody.Value.Content {
			body, _ = json.Marshal(k.value(media.Schema, 0))
		}
		if k.random.IntN(10) == 0 && len(body) > 0 {
			body[k.random.IntN(len(body))] = byte(k.random.IntN(256))
		}
	}
	request := httptest.NewRequest(method, "http://service"+api.Base+path+"?"+query.Encode(), bytes.NewReader(body))
	request.Header.Set("Content-Type", "application/json")
	return request
}

// illegal sends many requests to one service: as it grows full of what was accepted, the later ones meet more.
func illegal(t *testing.T, seed uint64, rounds int) {
	description, err := openapi3.NewLoader().LoadFromData(api.Spec())
	require.NoError(t, err)
	w := newTestEnv(t)
	admin := w.person("root", "admins")
	k := &walker{random: rand.New(rand.NewPCG(seed, 0)), ids: map[string][]string{}}
	for _, name := range []string{"one", "two"} {
		env := w.infraEnv(admin, name)
		k.ids["infra_env_id"] = append(k.ids["infra_env_id"], env)
		k.ids["cluster_id"] = append(k.ids["cluster_id"], w.cluster(admin, name))
		for range 2 {
			host, _ := w.host(env)
			k.ids["host_id"] = append(k.ids["host_id"], host[strings.LastIndex(host, "/")+1:])
		}
	}
	paths := description.Paths.InMatchingOrder()
	slices.Sort(paths)
	for range rounds {
		for _, path := range paths {
			item := description.Paths.Value(path)
			for method, operation := range item.Operations() {
				if strings.HasPrefix(operation.OperationID, "Stream") {
					continue
				}
				request := k.request(path, method, item, operation)
				if operation.OperationID == "GetNextSteps" {
					request.URL.RawQuery = "wait=0"
				}
				request.Header.Set("Authorization", admin["Authorization"])
				answer := httptest.NewRecorder()
				w.server.Config.Handler.ServeHTTP(answer, request)
				require.Less(t, answer.Code, 500, "%s %s?%s\n%s", method, request.URL.Path, request.URL.RawQuery, answer.Body)
				if answer.Code >= 400 {
					var refused api.Error
					require.NoError(t, json.Unmarshal(answer.Body.Bytes(), &refused), "%s %s", method, request.URL.Path)
					require.NotEmpty(t, refused.Reason, "%s %s", method, request.URL.Path)
				}
			}
		}
	}
}

func TestIllegalRequestsAreRefusedWithAReason(t *testing.T) {
	for seed := range uint64(3) {
		illegal(t, seed, 12)
	}
}

func FuzzIllegalRequests(f *testing.F) {
	f.Add(uint64(42))
	f.Fuzz(func(t *testing.T, seed uint64) { illegal(t, seed, 2) })
}
