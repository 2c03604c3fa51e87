// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package inprocess calls the handler of REST v2 in the process that serves it, as a client of its own does over the network.
package inprocess

import (
	"context"
	"fmt"
	"io"
	"net/http"

	"github.com/muster-io/muster/agent-service/api"
	"github.com/muster-io/muster/agent-service/client"
)

// NewClient calls the API with a person's token, on behalf of the request of a browser.
func NewClient(handler http.Handler, token string, behalf *http.Request) (*client.Client, error) {
	with := func(_ context.Context, r *http.Request) error {
		if token != "" {
			r.Header.Set("Authorization", "Bearer "+token)
		}
		r.RemoteAddr = behalf.RemoteAddr
		return nil
	}
	return client.NewClient("http://console"+api.Base, client.WithHTTPClient(&http.Client{Transport: Transport{handler}}), client.WithRequestEditorFn(with))
}

// Transport answers requests by a handler of this process.
type Transport struct{ Handler http.Handler }

// RoundTrip implements http.RoundTripper. The body of the answer is read as the handler writes it.
func (t Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	served := r.Clone(r.Context())
	served.RequestURI = r.URL.RequestURI()
	if served.Body == nil {
		served.Body = http.NoBody
	}
	reader, writer := io.Pipe()
	a := &answering{header: http.Header{}, begun: make(chan *http.Response, 1), request: r, body: reader, pipe: writer}
	go func() {
		defer func() {
			err := error(nil)
			if p := recover(); p != nil {
				err = fmt.Errorf("the handler ended: %v", p)
			}
			a.WriteHeader(http.StatusOK) // for a handler that wrote nothing
			_ = writer.CloseWithError(err)
		}()
		t.Handler.ServeHTTP(a, served)
	}()
	select {
	case response := <-a.begun:
		return response, nil
	case <-r.Context().Done():
		_ = reader.CloseWithError(r.Context().Err())
		return nil, r.Context().Err()
	}
}

// answering is an answer that a handler writes. Its methods are called by the handler's goroutine alone.
type answering struct {
	header  http.Header
	wrote   bool
	begun   chan *http.Response
	request *http.Request
	body    *io.PipeReader
	pipe    *io.PipeWriter
}

// Header implements http.ResponseWriter.
func (a *answering) Header() http.Header { return a.header }

// WriteHeader implements http.ResponseWriter.
func (a *answering) WriteHeader(status int) {
	if a.wrote {
		return
	}
	a.wrote = true
	a.begun <- &http.Response{
		Status: http.StatusText(status), StatusCode: status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Header: a.header.Clone(), Body: a.body, ContentLength: -1, Request: a.request,
	}
}

// Write implements http.ResponseWriter.
func (a *answering) Write(b []byte) (int, error) {
	a.WriteHeader(http.StatusOK)
	return a.pipe.Write(b)
}

// Flush implements http.Flusher: what was written is read already.
func (a *answering) Flush() { a.WriteHeader(http.StatusOK) }
