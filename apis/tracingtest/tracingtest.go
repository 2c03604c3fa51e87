// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package tracingtest is a collector of traces for tests: the OTLP/gRPC service, on a port of this machine.
package tracingtest

import (
	"context"
	"encoding/hex"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr/testr"
	"github.com/stretchr/testify/require"
	collectorv1 "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	commonv1 "go.opentelemetry.io/proto/otlp/common/v1"
	"google.golang.org/grpc"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/muster-io/muster/apis/tracing"
)

// Span is one that was received.
type Span struct {
	Service, Trace, ID, Parent, Name string
	// Failed is true for one whose status is an error, and Message says which.
	Failed     bool
	Message    string
	Attributes map[string]string
}

// Collector receives spans.
type Collector struct {
	collectorv1.UnimplementedTraceServiceServer
	mu    sync.Mutex
	spans []Span
}

// Start serves a collector until the test ends, and names it in the environment of the test.
func Start(t *testing.T) *Collector {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	c, server := &Collector{}, grpc.NewServer()
	collectorv1.RegisterTraceServiceServer(server, c)
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://"+listener.Addr().String())
	t.Setenv("OTEL_BSP_SCHEDULE_DELAY", "50")
	return c
}

// Trace starts a collector, and sends it what this process does until the returned function is called, which waits until all has been sent.
func Trace(t *testing.T, service string) (c *Collector, stop func()) {
	t.Helper()
	c = Start(t)
	stop = sync.OnceFunc(tracing.Start(t.Context(), service, testr.New(t)))
	t.Cleanup(stop)
	return c, stop
}

// Export implements the service.
func (c *Collector) Export(_ context.Context, request *collectorv1.ExportTraceServiceRequest) (*collectorv1.ExportTraceServiceResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, of := range request.GetResourceSpans() {
		service := texts(of.GetResource().GetAttributes())["service.name"]
		for _, scope := range of.GetScopeSpans() {
			for _, s := range scope.GetSpans() {
				c.spans = append(c.spans, Span{
					Service: service, Trace: hex.EncodeToString(s.GetTraceId()), ID: hex.EncodeToString(s.GetSpanId()), Parent: hex.EncodeToString(s.GetParentSpanId()), Name: s.GetName(),
					Failed: s.GetStatus().GetCode().Number() == 2, Message: s.GetStatus().GetMessage(), Attributes: texts(s.GetAttributes()),
				})
			}
		}
	}
	return &collectorv1.ExportTraceServiceResponse{}, nil
}

func texts(attributes []*commonv1.KeyValue) map[string]string {
	out := map[string]string{}
	for _, a := range attributes {
		if out[a.GetKey()] = a.GetValue().GetStringValue(); out[a.GetKey()] == "" {
			out[a.GetKey()] = a.GetValue().String()
		}
	}
	return out
}

// Spans returns those that were received and that want lets through.
func (c *Collector) Spans(want func(Span) bool) []Span {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []Span
	for _, s := range c.spans {
		if want(s) {
			out = append(out, s)
		}
	}
	return out
}

// Wait waits until a span is received that want lets through, and returns it.
func (c *Collector) Wait(t *testing.T, want func(Span) bool) Span {
	t.Helper()
	var found Span
	err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, time.Minute, true, func(context.Context) (bool, error) {
		spans := c.Spans(want)
		if len(spans) > 0 {
			found = spans[0]
		}
		return len(spans) > 0, nil
	})
	require.NoError(t, err, "the span is not received; there are %+v", c.Spans(func(Span) bool { return true }))
	return found
}
