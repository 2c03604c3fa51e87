// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package tracing

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/go-logr/logr/testr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

func TestTracesAreOnWhereACollectorIsNamed(t *testing.T) {
	endpoint := map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4317"}
	with := func(name, value string) map[string]string {
		return map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4317", name: value}
	}
	for name, test := range map[string]struct {
		given map[string]string
		want  bool
		why   string
	}{
		"nothing is set":               {given: nil},
		"a collector":                  {given: endpoint, want: true},
		"a collector of traces":        {given: map[string]string{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "https://collector:4317"}, want: true},
		"the library is disabled":      {given: with("OTEL_SDK_DISABLED", "TRUE")},
		"no exporter":                  {given: with("OTEL_TRACES_EXPORTER", "none")},
		"an exporter that is not here": {given: with("OTEL_TRACES_EXPORTER", "zipkin"), why: "OTEL_TRACES_EXPORTER=zipkin: write otlp"},
		"the protocol gRPC":            {given: with("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"), want: true},
		"another protocol":             {given: with("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf"), why: "OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf: write grpc, and the port of the collector for it, such as 4317"},
	} {
		t.Run(name, func(t *testing.T) {
			on, why := enabled(func(key string) string { return test.given[key] })
			assert.Equal(t, test.want, on)
			assert.Equal(t, test.why, why)
		})
	}
}

func TestWithoutACollectorNothingIsAdded(t *testing.T) {
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "")
	Start(t.Context(), "test", testr.New(t))()
	pass := reconcile.Func(func(context.Context, reconcile.Request) (reconcile.Result, error) { return reconcile.Result{}, nil })
	traced := ReconcilerOf("test", pass, func(context.Context, reconcile.Request) types.UID { panic("asked while traces are off") })
	assert.Zero(t, testing.AllocsPerRun(100, func() {
		_, _ = traced.Reconcile(t.Context(), reconcile.Request{})
		_, end := Call(t.Context(), "call")
		end(nil)
	}), "allocations")
}

// The listener takes connections and never answers, with a queue that is smaller than what is to be sent.
func TestACollectorThatHangsDelaysNothing(t *testing.T) {
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, listener.Close()) })
	exporter, err := otlptracegrpc.New(t.Context(), otlptracegrpc.WithEndpointURL("http://"+listener.Addr().String()))
	require.NoError(t, err)
	tracer := newTracer(sdktrace.WithBatcher(exporter, sdktrace.WithMaxQueueSize(10), sdktrace.WithMaxExportBatchSize(5)))
	current.Store(tracer)
	failure := errors.New("of the pass")
	passes := 0
	traced := Reconciler("test", reconcile.Func(func(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
		passes++
		_, end := Call(ctx, "call", attribute.String("of", "test"))
		end(nil)
		return reconcile.Result{RequeueAfter: time.Second}, failure
	}))
	for range 1000 {
		result, err := traced.Reconcile(t.Context(), reconcile.Request{})
		require.ErrorIs(t, err, failure)
		require.Equal(t, time.Second, result.RequeueAfter)
	}
	assert.Equal(t, 1000, passes)
	tracer.stop(t.Context(), 10*time.Millisecond) // the test would time out here
	assert.Nil(t, current.Load())
}
