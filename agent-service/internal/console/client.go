// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package console

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"

	"github.com/muster-io/muster/agent-service/api"
	"github.com/muster-io/muster/agent-service/client"
)

// newClient calls the API with a person's token, on behalf of the request of a browser.
func newClient(handler http.Handler, token string, behalf *http.Request) (*client.Client, error) {
	with := func(_ context.Context, r *http.Request) error {
		if token != "" {
			r.Header.Set("Authorization", "Bearer "+token)
		}
		r.RemoteAddr = behalf.RemoteAddr
		return nil
	}
	return client.NewClient("http://console"+api.Base, client.WithHTTPClient(&http.Client{Transport: transport{handler}}), client.WithRequestEditorFn(with))
}

// transport answers requests by a handler of this process.
type transport struct{ handler http.Handler }

// RoundTrip implements http.RoundTripper. The body of the answer is read as the handler writes it.
func (t transport) RoundTrip(r *http.Request) (*http.Response, error) {
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
		t.handler.ServeHTTP(a, served)
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

// accept turns an answer that is no success into a refusal.
func accept(response *http.Response, err error) (*http.Response, error) {
	if err != nil {
		return nil, fmt.Errorf("calling the API: %w", err)
	}
	if response.StatusCode < 300 {
		return response, nil
	}
	defer response.Body.Close() //nolint:errcheck // it is only read
	var reason api.Error
	_ = json.NewDecoder(io.LimitReader(response.Body, 1<<20)).Decode(&reason)
	return nil, refused(response.StatusCode, reason)
}

// call reads an answer of the API, or the refusal in its place.
func call[T any](response *http.Response, err error) (T, error) {
	found, _, err := page[T](response, err)
	return found, err
}

// page is call for a page of a list; total counts what is on all pages.
func page[T any](response *http.Response, err error) (found T, total int, _ error) {
	if response, err = accept(response, err); err != nil {
		return found, 0, err
	}
	defer response.Body.Close() //nolint:errcheck // it is only read
	if response.StatusCode != http.StatusNoContent {
		if err := json.NewDecoder(response.Body).Decode(&found); err != nil && !errors.Is(err, io.EOF) {
			return found, 0, fmt.Errorf("reading an answer of the API: %w", err)
		}
	}
	total, _ = strconv.Atoi(response.Header.Get("X-Total-Count"))
	return found, total, nil
}

// pass hands an answer of the API to the browser as a file.
func (v *visit) pass(name string, response *http.Response, err error) error {
	if response, err = accept(response, err); err != nil {
		return err
	}
	defer response.Body.Close() //nolint:errcheck // it is only read
	v.w.Header().Set("Content-Type", "application/octet-stream")
	v.w.Header().Set("Content-Disposition", fmt.Sprintf("attachment; filename=%q", name))
	_, err = io.Copy(v.w, response.Body)
	if err != nil {
		v.Log.Sugar().Debugf("handing on %s: %v", name, err)
	}
	return nil // the answer has begun: there is no other one
}

// isStatus is true for a refusal of the API with that status.
func isStatus(err error, status int) bool {
	refused, ok := asRefusal(err)
	return ok && refused.status == status
}

func asRefusal(err error) (*refusal, bool) {
	var refused *refusal
	ok := errors.As(err, &refused)
	return refused, ok
}
