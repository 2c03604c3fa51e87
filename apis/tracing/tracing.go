// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package tracing sends OpenTelemetry traces of an operator to a collector, over OTLP/gRPC. It is off, and costs nothing, unless the standard environment variables
// name a collector. Each reconcile, and each call of what an operator depends on, is a span.
package tracing

import (
	"context"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/muster-io/muster/apis/buildinfo"
)

const (
	// scope names what makes the spans.
	scope = "github.com/muster-io/muster"
	// stopTimeout is how long the last spans may take to be sent.
	stopTimeout = 2 * time.Second
	// complaintInterval is how often a collector that takes no spans is logged.
	complaintInterval = time.Minute
)

// current makes spans; nil while traces are off.
var current atomic.Pointer[tracer]

type tracer struct {
	trace.Tracer
	provider *sdktrace.TracerProvider
}

// Usage makes --help tell how traces are switched on.
func Usage(flags *flag.FlagSet) {
	flags.Usage = func() {
		_, _ = fmt.Fprintf(flags.Output(), "Usage of %s:\n", flags.Name())
		flags.PrintDefaults()
		_, _ = fmt.Fprintln(flags.Output(), "Environment:\n  OTEL_EXPORTER_OTLP_ENDPOINT\n    \tcollector of OpenTelemetry traces over gRPC, such as http://collector:4317; without it, no traces are sent")
	}
}

// Start begins to send traces where the environment names a collector (OTEL_EXPORTER_OTLP_ENDPOINT and the like), and returns what ends it. A collector that is away or
// hangs delays nothing: spans that it does not take are dropped, and the log says so. A setting that cannot be followed is logged, and the operator runs without traces.
func Start(ctx context.Context, service string, log logr.Logger) (stop func()) {
	on, why := enabled(os.Getenv)
	if why != "" {
		log.Info("traces are off", "cause", why)
	}
	if !on {
		return func() {}
	}
	// The library logs headers that it cannot read, which may hold credentials.
	otel.SetLogger(logr.Discard())
	otel.SetErrorHandler(complaints(log))
	exporter, err := otlptracegrpc.New(ctx)
	if err != nil {
		log.Info("traces are off", "cause", err.Error())
		return func() {}
	}
	host, _ := os.Hostname()
	described, err := resource.New(ctx, resource.WithAttributes(
		attribute.String("service.name", service), attribute.String("service.version", buildinfo.Version()), attribute.String("service.instance.id", host),
	), resource.WithFromEnv())
	if err != nil {
		log.Info("traces carry a part of their resource only", "cause", err.Error())
	}
	t := newTracer(sdktrace.WithBatcher(exporter), sdktrace.WithResource(described))
	current.Store(t)
	return func() { t.stop(ctx, stopTimeout) }
}

func newTracer(options ...sdktrace.TracerProviderOption) *tracer {
	provider := sdktrace.NewTracerProvider(append(options, sdktrace.WithIDGenerator(ids{}))...)
	return &tracer{Tracer: provider.Tracer(scope, trace.WithInstrumentationVersion(buildinfo.Version())), provider: provider}
}

// stop sends what is left, and gives up after a time. It is called when ctx has ended.
func (t *tracer) stop(ctx context.Context, within time.Duration) {
	current.CompareAndSwap(t, nil)
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), within)
	defer cancel()
	if err := t.provider.Shutdown(last); err != nil {
		otel.Handle(err)
	}
}

// enabled is whether traces are wanted, and why they are off although a collector is named.
func enabled(getenv func(string) string) (on bool, why string) {
	of := func(names ...string) string {
		for _, name := range names {
			if value := strings.TrimSpace(getenv(name)); value != "" {
				return value
			}
		}
		return ""
	}
	if of("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT") == "" || strings.EqualFold(of("OTEL_SDK_DISABLED"), "true") || of("OTEL_TRACES_EXPORTER") == "none" {
		return false, ""
	}
	if exporter := of("OTEL_TRACES_EXPORTER"); exporter != "" && !slices.Contains(strings.Split(exporter, ","), "otlp") {
		return false, "OTEL_TRACES_EXPORTER=" + exporter + ": write otlp"
	}
	if protocol := of("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"); protocol != "" && protocol != "grpc" {
		return false, "OTEL_EXPORTER_OTLP_PROTOCOL=" + protocol + ": write grpc, and the port of the collector for it, such as 4317"
	}
	return true, ""
}

// complaints logs what goes wrong with traces, once a minute at most.
func complaints(log logr.Logger) otel.ErrorHandlerFunc {
	var next atomic.Int64
	return func(err error) {
		now, from := time.Now(), next.Load()
		if now.UnixNano() < from || !next.CompareAndSwap(from, now.Add(complaintInterval).UnixNano()) {
			return
		}
		log.Info("traces are not sent", "cause", err.Error())
	}
}

// Call begins the span of a call of what an operator depends on, such as Ironic or a database. The caller calls end with the error of the call, nil for none.
// Attributes hold no arguments, credentials or bodies.
func Call(ctx context.Context, name string, attributes ...attribute.KeyValue) (spanned context.Context, end func(error)) {
	t := current.Load()
	if t == nil {
		return ctx, ignore
	}
	spanned, span := t.Start(ctx, name, trace.WithSpanKind(trace.SpanKindClient), trace.WithAttributes(attributes...))
	return spanned, func(err error) { finish(span, err) }
}

func ignore(error) {}

// finish ends a span with what came of it.
func finish(span trace.Span, err error) {
	if err != nil {
		span.RecordError(err)
		span.SetStatus(codes.Error, err.Error())
	}
	span.End()
}
