// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package ironic

import (
	"errors"
	"io"
	"net/http"
	"time"

	"go.opentelemetry.io/otel/attribute"

	"github.com/muster-io/muster/apis/tracing"
)

// maxReply bounds one reply. A page of 1,000 nodes has 0.4 MB; an inventory of a large machine 0.2 MB.
const maxReply = 32 << 20

var errTooLong = errors.New("the reply is longer than 32 MiB")

// Observer is called for each request: the operation, the status (0 when there was no reply) and the time it took.
type Observer func(operation string, status int, took time.Duration)

type operationKey struct{}

// bounded limits replies, counts requests, and makes each of them a span.
type bounded struct {
	next    http.RoundTripper
	observe Observer
}

// RoundTrip implements http.RoundTripper.
func (b *bounded) RoundTrip(req *http.Request) (*http.Response, error) {
	operation, ok := req.Context().Value(operationKey{}).(string)
	if !ok {
		operation = "authenticate"
	}
	ctx, end := tracing.Call(req.Context(), "ironic "+operation, attribute.String("http.request.method", req.Method), attribute.String("server.address", req.URL.Host))
	began := time.Now()
	resp, err := b.next.RoundTrip(req.WithContext(ctx))
	status := 0
	if err == nil {
		status = resp.StatusCode
		resp.Body = &limited{ReadCloser: resp.Body, left: maxReply}
	}
	if b.observe != nil {
		b.observe(operation, status, time.Since(began))
	}
	end(refusal(resp, err))
	return resp, err
}

// refusal is the error of a request for its span, without what the reply says.
func refusal(resp *http.Response, err error) error {
	if err == nil && resp.StatusCode >= http.StatusBadRequest {
		return errors.New(resp.Status)
	}
	return err
}

type limited struct {
	io.ReadCloser
	left int64
}

// Read implements io.Reader; it fails when the reply is longer than allowed.
func (l *limited) Read(p []byte) (int, error) {
	if l.left <= 0 {
		return 0, errTooLong
	}
	if int64(len(p)) > l.left {
		p = p[:l.left]
	}
	n, err := l.ReadCloser.Read(p)
	l.left -= int64(n)
	return n, err
}
