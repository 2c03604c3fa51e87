// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// faults makes a client as unlucky as a seed says: writes that do not reach the API server, answers that are lost after the write took effect, as an
// error of the connection or as a time-out of the server, conflicts, and watches that are behind.
type faults struct {
	mu     sync.Mutex
	random *rand.Rand
}

func newFaults(seed uint64) *faults { return &faults{random: rand.New(rand.NewPCG(seed, 7))} }

func (f *faults) percent() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.random.IntN(100)
}

type tripperFunc func(*http.Request) (*http.Response, error)

func (f tripperFunc) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// wrap fits rest.Config.Wrap.
func (f *faults) wrap(next http.RoundTripper) http.RoundTripper {
	return tripperFunc(func(req *http.Request) (*http.Response, error) {
		if !strings.Contains(req.URL.Path, "/ipam.") {
			return next.RoundTrip(req)
		}
		if req.Method == http.MethodGet {
			resp, err := next.RoundTrip(req)
			if err == nil && req.URL.Query().Get("watch") != "" {
				resp.Body = &lagging{ReadCloser: resp.Body, faults: f}
			}
			return resp, err
		}
		return f.write(req, next)
	})
}

func (f *faults) write(req *http.Request, next http.RoundTripper) (*http.Response, error) {
	luck := f.percent()
	switch {
	case luck < 2:
		return nil, errors.New("connection refused")
	case luck < 4 && req.Method == http.MethodPatch:
		return refusal(req, http.StatusConflict, metav1.StatusReasonConflict)
	}
	resp, err := next.RoundTrip(req)
	if err != nil || luck < 4 || luck >= 8 {
		return resp, err
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	_ = resp.Body.Close()
	if luck < 6 {
		return nil, errors.New("connection reset after the write took effect")
	}
	return refusal(req, http.StatusGatewayTimeout, metav1.StatusReasonTimeout)
}

// refusal is what an API server answers.
func refusal(req *http.Request, code int, reason metav1.StatusReason) (*http.Response, error) {
	body, err := json.Marshal(metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure, Reason: reason, Code: int32(code), Message: "by bad luck",
	})
	if err != nil {
		return nil, err
	}
	return &http.Response{
		Status: http.StatusText(code), StatusCode: code, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Request: req,
		Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(bytes.NewReader(body)), ContentLength: int64(len(body)),
	}, nil
}

// lagging shows some events of a watch, and all behind them, late.
type lagging struct {
	io.ReadCloser
	faults *faults
}

// Read implements io.Reader.
func (l *lagging) Read(p []byte) (int, error) {
	n, err := l.ReadCloser.Read(p)
	if luck := l.faults.percent(); luck < 10 {
		<-time.After(time.Duration(luck) * 50 * time.Millisecond)
	}
	return n, err
}
