// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package httpapi_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap/zaptest"

	"github.com/muster-io/muster/agent-service/internal/agentproto"
	"github.com/muster-io/muster/agent-service/internal/domain"
	"github.com/muster-io/muster/agent-service/internal/httpapi"
	"github.com/muster-io/muster/agent-service/internal/join"
	"github.com/muster-io/muster/agent-service/internal/service"
	"github.com/muster-io/muster/agent-service/internal/store"
	"github.com/muster-io/muster/agent-service/internal/token"
)

const patience = 3 * time.Minute

// testEnv is the service as users and agents find it: real store, real domain, real tokens, behind HTTP.
type testEnv struct {
	t         testing.TB
	server    *httptest.Server
	service   *service.Service
	authority *token.Authority
	key       *ecdsa.PrivateKey
	// ahead is how far the clock of machines' tokens is ahead.
	ahead atomic.Int64
}

// later lets time pass for tokens of machines.
func (w *testEnv) later(d time.Duration) { w.ahead.Add(int64(d)) }

func newTestEnv(t testing.TB) *testEnv {
	t.Helper()
	return newTestEnvOn(t, filepath.Join(t.TempDir(), "a.db"))
}

// newTestEnvOn keeps its data at an address of a database.
func newTestEnvOn(t testing.TB, address string) *testEnv {
	t.Helper()
	dir := t.TempDir()
	db, err := store.Open(t.Context(), address)
	require.NoError(t, err)
	log := zaptest.NewLogger(t)
	w := &testEnv{t: t}
	w.service = service.New(db, service.Options{
		Log: log, BaseURL: "https://muster.example.com", InstallerImage: "quay.example.com/muster/installer:1",
		HostToken: func(ctx context.Context, h *domain.Host) (string, error) { return w.authority.ForInstalled(ctx, h) },
		Rejoin: func(context.Context, *domain.Host, *domain.Cluster) (*join.Values, error) {
			return &join.Values{Server: "https://192.0.2.1:6443", Token: bootstrapToken}, nil
		},
		OSImages: []agentproto.OSImage{{Version: "4.20", URL: "https://images.example.com/disk.raw.gz", SHA256: strings.Repeat("7", 64)}},
	})
	key, err := token.Key(filepath.Join(dir, "a.key"))
	require.NoError(t, err)
	w.authority, err = token.New(token.Options{Key: key, Generations: w.service, Now: func() time.Time { return time.Now().Add(time.Duration(w.ahead.Load())) }})
	require.NoError(t, err)
	handler, err := httpapi.New(httpapi.Options{Service: w.service, Authority: w.authority, People: w.people(dir), Release: "test", Log: log,
		Versions: []httpapi.Version{{Name: "4.20", DisplayName: "4.20", CPUArchitectures: []string{"x86_64"}, Default: true}}})
	require.NoError(t, err)
	w.server = httptest.NewServer(handler)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- w.service.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-done)
		w.server.Close()
		require.NoError(t, db.Close())
	})
	require.Eventually(t, func() bool { return w.service.Ready(t.Context()) == nil }, patience, 10*time.Millisecond)
	return w
}

// people are those who have a token of the test's issuer.
func (w *testEnv) people(dir string) token.People {
	var err error
	w.key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(w.t, err)
	der, err := x509.MarshalPKIXPublicKey(&w.key.PublicKey)
	require.NoError(w.t, err)
	file := filepath.Join(dir, "issuer.pem")
	require.NoError(w.t, os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}), 0o600))
	keys, err := token.ReadKeyFile(file)
	require.NoError(w.t, err)
	return &token.Issuer{URL: "https://issuer", OrganizationClaim: "org", AdminGroup: "admins", ViewerGroup: "viewers", Keys: keys, Now: time.Now}
}

// caller comes with headers.
type caller map[string]string

func (w *testEnv) person(user string, groups ...string) caller {
	raw, err := jwt.NewWithClaims(jwt.SigningMethodES256, jwt.MapClaims{
		"iss": "https://issuer", "sub": user, "groups": groups, "exp": time.Now().Add(time.Hour).Unix(),
	}).SignedString(w.key)
	require.NoError(w.t, err)
	return caller{"Authorization": "Bearer " + raw}
}

func (w *testEnv) image(infraEnv string) string {
	generations, err := w.service.TokenGenerations(w.t.Context(), infraEnv)
	require.NoError(w.t, err)
	raw, err := w.authority.ForImage(infraEnv, generations)
	require.NoError(w.t, err)
	return raw
}

type answer struct {
	status int
	header http.Header
	raw    string
	body   map[string]any
}

func (a answer) text(name string) string { return fmt.Sprint(a.body[name]) }

// call asks for a path below the base; body is JSON, a string as it is, or nil.
func (w *testEnv) call(who caller, method, path string, body any) answer {
	w.t.Helper()
	var content io.Reader
	switch b := body.(type) {
	case nil:
	case string:
		content = strings.NewReader(b)
	default:
		raw, err := json.Marshal(b)
		require.NoError(w.t, err)
		content = strings.NewReader(string(raw))
	}
	request, err := http.NewRequestWithContext(w.t.Context(), method, w.server.URL+"/api/assisted-install/v2"+path, content)
	require.NoError(w.t, err)
	if content != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	for name, value := range who {
		request.Header.Set(name, value)
	}
	response, err := w.server.Client().Do(request)
	require.NoError(w.t, err)
	defer response.Body.Close() //nolint:errcheck // it is only read
	raw, err := io.ReadAll(response.Body)
	require.NoError(w.t, err)
	a := answer{status: response.StatusCode, header: response.Header, raw: string(raw)}
	_ = json.Unmarshal(raw, &a.body)
	return a
}

func (w *testEnv) infraEnv(who caller, name string) string {
	w.t.Helper()
	a := w.call(who, "POST", "/infra-envs", map[string]any{"name": name, "pull_secret": `{"auths":{}}`})
	require.Equal(w.t, http.StatusCreated, a.status, a.raw)
	return a.text("id")
}

func (w *testEnv) cluster(who caller, name string) string {
	w.t.Helper()
	a := w.call(who, "POST", "/clusters", map[string]any{"name": name, "openshift_version": "4.20", "pull_secret": `{"auths":{}}`})
	require.Equal(w.t, http.StatusCreated, a.status, a.raw)
	return a.text("id")
}

const inventory = `{"hostname":"h1","cpu":{"architecture":"x86_64","count":16},"memory":{"physical_bytes":68719476736,"usable_bytes":68719476736},` +
	`"disks":[{"id":"d","name":"sda","path":"/dev/sda","drive_type":"SSD","size_bytes":480000000000,"installation_eligibility":{"eligible":true}}],` +
	`"interfaces":[{"name":"eno1","mac_address":"52:54:00:00:00:01","ipv4_addresses":["10.0.0.1/24"],"ipv6_addresses":[]}],` +
	`"routes":[{"destination":"0.0.0.0","gateway":"10.0.0.254","interface":"eno1","family":2}]}`

// host registers a machine with the image's token, as an agent in the field does, and reports its inventory. It returns the paths of the host and its token.
func (w *testEnv) host(infraEnv string) (path, narrowed string) {
	w.t.Helper()
	agent := caller{"X-Secret-Key": w.image(infraEnv)}
	id := uuid.NewString()
	registered := w.call(agent, "POST", "/infra-envs/"+infraEnv+"/hosts", map[string]any{"host_id": id})
	require.Equal(w.t, http.StatusCreated, registered.status, registered.raw)
	path = "/infra-envs/" + infraEnv + "/hosts/" + id
	report := w.call(agent, "POST", path+"/instructions", map[string]any{"step_type": "inventory", "step_id": "inventory-1", "exit_code": 0, "output": inventory})
	require.Equal(w.t, http.StatusNoContent, report.status, report.raw)
	return path, registered.text("token")
}
