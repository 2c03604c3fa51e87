// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package structure

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestControllersLeaveTheMeaningOfErrorsToOnePackage(t *testing.T) {
	found, err := Outcomes("../../..")
	require.NoError(t, err)
	assert.Empty(t, found, "return the error, and wrap the reconciler in outcome.Reconciler; outcome.Again and outcome.Pace say what the class does not")
}

func TestOutcomes(t *testing.T) {
	for given, c := range map[string]struct {
		text string
		want []string
	}{
		"a pass that asks for a conflict": {
			"func (r *R) Reconcile() (ctrl.Result, error) {\n\tif apierrors.IsConflict(err) {\n\t}\n}\n",
			[]string{"o/internal/p/p.go: Reconcile asks apierrors.IsConflict"},
		},
		"a part of a pass that asks for throttling": {
			"func f() (reconcile.Result, error) { return g(apierrors.IsTooManyRequests(err)) }\n",
			[]string{"o/internal/p/p.go: f asks apierrors.IsTooManyRequests"},
		},
		"an object that is gone":              {"func f() (reconcile.Result, error) { return g(apierrors.IsNotFound(err)) }\n", nil},
		"an action that goes on after a race": {"func f() error { return g(apierrors.IsConflict(err)) }\n", nil},
		"a reconciler that is mapped":         {"func f() { b.Complete(tracing.Reconciler(\"p\", outcome.Reconciler[ctrl.Request](r))) }\n", nil},
		"a reconciler as it is": {
			"func f() { b.Complete(tracing.ReconcilerOf(\"p\", r, of)) }\n",
			[]string{"o/internal/p/p.go: f sets up a reconciler without outcome.Reconciler"},
		},
	} {
		t.Run(given, func(t *testing.T) {
			root := t.TempDir()
			path := filepath.Join(root, "o", "internal", "p", "p.go")
			require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
			require.NoError(t, os.WriteFile(path, []byte("package p\n\n"+c.text), 0o600))
			got, err := Outcomes(root)
			require.NoError(t, err)
			assert.Equal(t, c.want, got)
		})
	}
}
