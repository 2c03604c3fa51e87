// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package httpapi serves REST v2 to users and agents. It translates between the wire and the domain; the service decides what is allowed.
package httpapi

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/getkin/kin-openapi/openapi3"
	"go.uber.org/zap"

	"github.com/muster-io/muster/agent-service/api"
	"github.com/muster-io/muster/agent-service/internal/apidocs"
	"github.com/muster-io/muster/agent-service/internal/bodylimit"
	"github.com/muster-io/muster/agent-service/internal/domain"
	"github.com/muster-io/muster/agent-service/internal/httpapi/description"
	"github.com/muster-io/muster/agent-service/internal/httpapi/logarchive"
	"github.com/muster-io/muster/agent-service/internal/service"
	"github.com/muster-io/muster/agent-service/internal/token"
)

// maxBody is how large a request may be: an inventory of 15,000 disks is about 6 MB.
const maxBody = 8 << 20

// maxLogs is how large an archive of logs may be, and logsAtOnce how many are taken at a time: each is in memory. A host that sends nothing for logsPause, or not all in
// logsTime, leaves its turn to others.
const (
	maxLogs    = 64 << 20
	logsAtOnce = 2
	logsPause  = 30 * time.Second
	logsTime   = 10 * time.Minute
)

// Images knows what discovery images are made from and where they are.
type Images interface {
	// URL is where the discovery image can be downloaded without a header.
	URL(ctx context.Context, env *domain.InfraEnv) (string, error)
	// FileURL is the same for the files discovery.ign and ipxe-script.
	FileURL(ctx context.Context, env *domain.InfraEnv, file ImageFile) (string, error)
	// Version is that of the live image that the discovery image is made from, empty where that is not known here.
	Version(env *domain.InfraEnv) string
	// File is the content of a file.
	File(ctx context.Context, env *domain.InfraEnv, file ImageFile) ([]byte, error)
}

// ImageFile names a file that belongs to a discovery image.
type ImageFile struct {
	// Name is discovery.ign, ipxe-script or static-network-config.
	Name string
	// MAC is of the machine that asks, empty if unknown.
	MAC string
	// ScriptType is discovery-image-always or boot-order-control, empty for what the infra-env says.
	ScriptType string
	// ISOType overrules the infra-env's, empty for that.
	ISOType string
}

// Version is something that infra-envs and clusters may name.
type Version struct {
	Name             string
	DisplayName      string
	CPUArchitectures []string
	Default          bool
}

// Options are what the handler needs.
type Options struct {
	Service   *service.Service
	Authority *token.Authority
	People    token.People
	// Images is nil where this process has none.
	Images Images
	// Programs is nil where this process has none.
	Programs Programs
	Versions []Version
	// BaseURL is how people reach this service, without a slash at the end; addresses that it makes are paths without one.
	BaseURL string
	// Release is the version of this service.
	Release string
	// AgentImage is the container image that agents of assisted-service run after their registration, empty for the one that they registered with.
	AgentImage string
	Log        *zap.Logger
	// Hold is how long polls are held, service.MaxHold if zero.
	Hold time.Duration
}

// described reads the description of the interface, which must not be changed.
var described = sync.OnceValues(func() (*openapi3.T, error) { return openapi3.NewLoader().LoadFromData(api.Spec()) })

// New makes the handler of all of REST v2, of its documentation (/docs) and of /healthz and /readyz.
func New(options Options) (http.Handler, error) {
	if options.Hold == 0 {
		options.Hold = service.MaxHold
	}
	document, err := described()
	if err != nil {
		return nil, fmt.Errorf("reading the description of the interface: %w", err)
	}
	s := &server{Options: options, operations: description.Operations(document), logs: bodylimit.NewTurns[domain.HostKey](logsAtOnce), bodies: bodylimit.New(), downloads: logarchive.NewTurns()}
	mux := http.NewServeMux()
	all := &handlers{clusters{s}, hosts{s}, infraEnvs{s}, files{s}, machines{s}, events{s}, facts{s}}
	strict := api.NewStrictHandlerWithOptions(all, []api.StrictMiddlewareFunc{inParts}, api.StrictHTTPServerOptions{RequestErrorHandlerFunc: s.unreadable, ResponseErrorHandlerFunc: s.refuse})
	api.HandlerWithOptions(strict, api.StdHTTPServerOptions{
		BaseURL: api.Base, BaseRouter: mux, ErrorHandlerFunc: s.unreadable,
		Middlewares: []api.MiddlewareFunc{s.checked, s.authenticated}, // the last one is the first to be asked
	})
	s.refuseUnserved(mux)
	docs, err := apidocs.New(document)
	if err != nil {
		return nil, err
	}
	mux.Handle("GET /docs", docs)
	mux.HandleFunc("GET /docs/openapi.yaml", apidocs.OpenAPI)
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok\n")) })
	mux.HandleFunc("GET /readyz", s.ready)
	return s.outermost(mux), nil
}

// server is what all operations share: the service, the checks before each of them, and the answers to what is refused.
type server struct {
	Options
	operations map[string]description.Operation
	// logs are the turns at sending archives of logs.
	logs   *bodylimit.Turns[domain.HostKey]
	bodies *bodylimit.Limiter
	// downloads are the turns at reading them.
	downloads *logarchive.Turns
}

// handlers are all operations, by what they are about.
type handlers struct {
	clusters
	hosts
	infraEnvs
	files
	machines
	events
	facts
}

var _ api.StrictServerInterface = (*handlers)(nil)

func (s *server) ready(w http.ResponseWriter, r *http.Request) {
	if err := s.Service.Ready(r.Context()); err != nil {
		s.refuse(w, r, domain.Refuse(domain.Unavailable, "NotReady", "the service is not ready yet; try again"))
		return
	}
	_, _ = w.Write([]byte("ok\n"))
}

// outermost answers what no operation is there for in the form of all errors, and survives what a handler does not.
func (s *server) outermost(mux *http.ServeMux) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			if p := recover(); p != nil && p != http.ErrAbortHandler { //nolint:errorlint // a recovered value is compared, as net/http does
				s.refuse(w, r, fmt.Errorf("panic: %v", p))
			}
		}()
		withoutSlash(r)
		handler, pattern := mux.Handler(r)
		if pattern != "" {
			if operation, described := s.operations[pattern]; described {
				operation.DropEmpty(r)
			}
			mux.ServeHTTP(w, r)
			return
		}
		answer := &statusOnly{header: http.Header{}}
		handler.ServeHTTP(answer, r)
		if allowed := answer.header.Get("Allow"); allowed != "" {
			w.Header().Set("Allow", allowed)
			s.refuse(w, r, &refusal{http.StatusMethodNotAllowed, fmt.Sprintf("method %s is not allowed on this path; allowed are %s", r.Method, allowed)})
			return
		}
		s.refuse(w, r, &refusal{http.StatusNotFound, "this path does not exist; /docs lists the paths"})
	})
}

// withoutSlash takes the slash at the end of a path of REST away, as assisted-service does: clients list /clusters/ and /infra-envs/.
func withoutSlash(r *http.Request) {
	if !strings.HasPrefix(r.URL.Path, api.Base+"/") || !strings.HasSuffix(r.URL.Path, "/") {
		return
	}
	address := *r.URL
	address.Path, address.RawPath = strings.TrimRight(address.Path, "/"), strings.TrimRight(address.RawPath, "/")
	r.URL = &address
}

type statusOnly struct{ header http.Header }

// Header implements http.ResponseWriter.
func (s *statusOnly) Header() http.Header { return s.header }

// Write implements http.ResponseWriter.
func (s *statusOnly) Write(b []byte) (int, error) { return len(b), nil }

// WriteHeader implements http.ResponseWriter.
func (s *statusOnly) WriteHeader(int) {}

func isContext(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}
