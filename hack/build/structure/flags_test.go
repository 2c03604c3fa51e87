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

func TestEveryFlagHasAnEffect(t *testing.T) {
	found, err := UnusedFlags("../../..")
	require.NoError(t, err)
	assert.Empty(t, found, "use the field where the operator is wired")
}

func TestUnusedFlags(t *testing.T) {
	const bind = "func (o *Options) bind(flags *flag.FlagSet) { flags.IntVar(&o.Workers, \"workers\", 1, \"\") }\n"
	for given, c := range map[string]struct {
		text string
		want []string
	}{
		"a flag that is used":             {bind + "func run(o Options) { start(o.Workers) }\n", nil},
		"a flag that is read nowhere":     {bind, []string{"o/internal/app: Workers"}},
		"a flag that is only validated":   {bind + "func (o *Options) Validate() error { return check(o.Workers) }\n", []string{"o/internal/app: Workers"}},
		"a field that belongs to no flag": {"func (o *Options) bind(flags *flag.FlagSet) { flags.Func(o.Usage) }\n", nil},
	} {
		t.Run(given, func(t *testing.T) {
			root := t.TempDir()
			path := filepath.Join(root, "o", "internal", "app", "options.go")
			require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
			require.NoError(t, os.WriteFile(path, []byte("package app\n\n"+c.text), 0o600))
			got, err := UnusedFlags(root)
			require.NoError(t, err)
			assert.Equal(t, c.want, got)
		})
	}
}
