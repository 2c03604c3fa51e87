// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package tracingtest_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/muster-io/muster/apis/tracing"
	"github.com/muster-io/muster/apis/tracingtest"
)

func TestReconcilesOfOneObjectAreOneTrace(t *testing.T) {
	collector, stop := tracingtest.Trace(t, "operator")
	of := func(context.Context, reconcile.Request) types.UID { return "0b6a5f2e-1c1d-4d3a-9f10-6a2b3c4d5e6f" }
	pass := reconcile.Func(func(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
		_, end := tracing.Call(ctx, "call", attribute.String("of", "test"))
		end(errors.New("refused"))
		return reconcile.Result{}, nil
	})
	failing := reconcile.Func(func(context.Context, reconcile.Request) (reconcile.Result, error) {
		return reconcile.Result{}, errors.New("broken")
	})
	request := reconcile.Request{NamespacedName: types.NamespacedName{Namespace: "here", Name: "it"}}
	_, err := tracing.ReconcilerOf("first", pass, of).Reconcile(t.Context(), request)
	require.NoError(t, err)
	_, err = tracing.ReconcilerOf("second", failing, of).Reconcile(t.Context(), request)
	require.Error(t, err)
	_, err = tracing.Reconciler("alone", pass).Reconcile(t.Context(), request)
	require.NoError(t, err)
	stop()

	one := func(name string) tracingtest.Span {
		spans := collector.Spans(func(s tracingtest.Span) bool { return s.Name == name })
		require.NotEmpty(t, spans, name)
		return spans[0]
	}
	first, second, call := one("first"), one("second"), one("call")
	assert.Equal(t, "0b6a5f2e1c1d4d3a9f106a2b3c4d5e6f", first.Trace)
	assert.Equal(t, first.Trace, second.Trace)
	assert.NotEqual(t, first.Trace, one("alone").Trace)
	assert.Equal(t, first.ID, call.Parent)
	assert.Empty(t, first.Parent, "a parent that the collector never receives")
	assert.Equal(t, map[string]string{"controller": "first", "k8s.namespace.name": "here", "name": "it", "result": "success"}, first.Attributes)
	assert.Equal(t, "operator", first.Service)
	assert.Equal(t, "error", second.Attributes["result"])
	assert.True(t, second.Failed && call.Failed)
	assert.Equal(t, "broken", second.Message)
}
