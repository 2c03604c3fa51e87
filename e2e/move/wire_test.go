// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package move

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	clusterctl "sigs.k8s.io/cluster-api/cmd/clusterctl/client"
)

// errCut is what a move ends with whose wire was cut.
var errCut = errors.New("the wire was cut")

// scissors cut both wires of a move at one of its writes, and end the move as a kill does.
type scissors struct {
	// at names the write to cut, for example "source DELETE ipclaims"; empty for none.
	at string
	// nth write of that sort is cut; zero means the first.
	nth int
	// late lets the write take effect before the wire is cut.
	late bool

	mu   sync.Mutex
	seen int
	done bool
	end  context.CancelCauseFunc
}

// passes reports whether a request reaches the API server, and whether its answer comes back.
func (s *scissors) passes(place string, r *http.Request) (reaches, returns bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.done {
		return false, false
	}
	// /apis/group/version/namespaces/namespace/resource/name
	words := append(strings.Split(r.URL.Path, "/"), make([]string, 7)...)
	if s.at != place+" "+r.Method+" "+words[6] {
		return true, true
	}
	s.seen++
	s.done = s.seen >= s.nth
	return !s.done || s.late, !s.done
}

// wire gives a mover a kubeconfig that leads to a plane through the scissors.
func (s *scissors) wire(t *testing.T, p *plane) (kubeconfig string) {
	t.Helper()
	transport, err := rest.TransportFor(p.config)
	require.NoError(t, err)
	host, err := url.Parse(p.config.Host)
	require.NoError(t, err)
	proxy := &httputil.ReverseProxy{Transport: transport, Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(host) }, ErrorHandler: abort}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		reaches, returns := s.passes(p.name, r)
		if reaches && !returns {
			proxy.ServeHTTP(noResponse{http.Header{}}, r)
		}
		if !returns {
			s.end(errCut)
			panic(http.ErrAbortHandler)
		}
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	kubeconfig = filepath.Join(t.TempDir(), p.name+".kubeconfig")
	require.NoError(t, writeKubeconfig(kubeconfig, &clientcmdapi.Cluster{Server: server.URL}, ""))
	return kubeconfig
}

func abort(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) }

// noResponse is a ResponseWriter that discards the answer.
type noResponse struct{ header http.Header }

func (d noResponse) Header() http.Header         { return d.header }
func (d noResponse) Write(p []byte) (int, error) { return io.Discard.Write(p) }
func (noResponse) WriteHeader(int)               {}

// move does what "clusterctl move --namespace" does, and returns errCut if the scissors ended it.
func (w *testEnv) move(t *testing.T, namespace string, s *scissors) error {
	t.Helper()
	ctx, end := context.WithCancelCause(t.Context())
	defer end(nil)
	s.end = end
	ctx, stop := context.WithTimeout(ctx, patience)
	defer stop()
	ctl, err := clusterctl.New(ctx, "")
	require.NoError(t, err)
	err = ctl.Move(ctx, clusterctl.MoveOptions{
		Namespace:      namespace,
		FromKubeconfig: clusterctl.Kubeconfig{Path: s.wire(t, w.source)},
		ToKubeconfig:   clusterctl.Kubeconfig{Path: s.wire(t, w.target)},
	})
	if errors.Is(context.Cause(ctx), errCut) {
		return errCut
	}
	return err
}
