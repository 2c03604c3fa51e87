// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package tracing

import (
	"context"
	"crypto/rand"
	"fmt"

	"github.com/google/uuid"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// Of is the UID of the object whose trace a reconcile belongs to, empty for a trace of its own. It reads caches only, and is not called while traces are off.
type Of[Request comparable] func(context.Context, Request) types.UID

// Reconciler makes each reconcile of a controller a span in a trace of its own.
func Reconciler[Request comparable](controller string, r reconcile.TypedReconciler[Request]) reconcile.TypedReconciler[Request] {
	return ReconcilerOf(controller, r, func(context.Context, Request) types.UID { return "" })
}

// ReconcilerOf makes each reconcile of a controller a span in the trace of an object, whose ID is the object's UID without its dashes.
// Reconciles of several controllers and operators meet in one trace although none of them writes it anywhere.
func ReconcilerOf[Request comparable](controller string, r reconcile.TypedReconciler[Request], of Of[Request]) reconcile.TypedReconciler[Request] {
	return reconcile.TypedFunc[Request](func(ctx context.Context, request Request) (result reconcile.Result, err error) {
		t := current.Load()
		if t == nil {
			return r.Reconcile(ctx, request)
		}
		if id, uidErr := uuid.Parse(string(of(ctx, request))); uidErr == nil {
			ctx = context.WithValue(ctx, traceKey{}, trace.TraceID(id))
		}
		ctx, span := t.Start(ctx, controller, trace.WithAttributes(append(about(request), attribute.String("controller", controller))...))
		defer func() {
			span.SetAttributes(attribute.String("result", outcome(result, err)))
			finish(span, err)
		}()
		return r.Reconcile(ctx, request)
	})
}

// about are the attributes of what is reconciled.
func about(request any) []attribute.KeyValue {
	if r, ok := request.(reconcile.Request); ok {
		return []attribute.KeyValue{attribute.String("k8s.namespace.name", r.Namespace), attribute.String("name", r.Name)}
	}
	return []attribute.KeyValue{attribute.String("name", fmt.Sprint(request))}
}

// outcome names a result as the metrics of controllers do.
func outcome(result reconcile.Result, err error) string {
	switch {
	case err != nil:
		return "error"
	case result.RequeueAfter > 0:
		return "requeue_after"
	}
	return "success"
}

// traceKey has the ID of the trace that a root span is part of.
type traceKey struct{}

// ids implements sdktrace.IDGenerator. A root span gets the trace that its context names: it needs no parent, which no collector would ever receive.
type ids struct{}

// NewIDs implements sdktrace.IDGenerator.
func (g ids) NewIDs(ctx context.Context) (trace.TraceID, trace.SpanID) {
	id, ok := ctx.Value(traceKey{}).(trace.TraceID)
	if !ok {
		_, _ = rand.Read(id[:]) // it never fails
	}
	return id, g.NewSpanID(ctx, id)
}

// NewSpanID implements sdktrace.IDGenerator.
func (ids) NewSpanID(context.Context, trace.TraceID) (id trace.SpanID) {
	_, _ = rand.Read(id[:])
	return id
}
