// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package ironic runs a real Ironic of its own on loopback, with the scripts of hack/ironic.
package ironic

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/muster-io/muster/apis/porttest"
	"github.com/muster-io/muster/e2e/checkout"
)

// Ironic is an instance with ports and data of its own.
type Ironic struct {
	// Endpoint and Inspector are its URLs once it is up. Inspector is empty where Ironic discovers by itself.
	Endpoint, Inspector string

	dir string
	env []string
}

// New makes room for an instance below the directory for temporary files, until Close. Settings are variables of hack/ironic, as NAME=value.
func New(settings ...string) (*Ironic, error) {
	dir, err := os.MkdirTemp("", "muster-ironic-")
	if err != nil {
		return nil, fmt.Errorf("making a directory for Ironic: %w", err)
	}
	i := &Ironic{dir: dir, env: append(os.Environ(), "IRONIC_DIR="+filepath.Join(dir, "ironic"))}
	for _, name := range []string{"IRONIC_PORT", "IRONIC_INSPECTOR_PORT", "IRONIC_RPC_PORT"} {
		port, err := porttest.Find()
		if err != nil {
			_ = os.RemoveAll(dir)
			return nil, err
		}
		i.env = append(i.env, name+"="+port)
	}
	i.env = append(i.env, settings...)
	return i, nil
}

// Run runs a script of hack/ironic with an input, and returns what it prints. The script up sets the endpoints.
func (i *Ironic) Run(ctx context.Context, input, script string, args ...string) (string, error) {
	path, err := checkout.Path("hack", "ironic", script)
	if err != nil {
		return "", err
	}
	var out, errs bytes.Buffer
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Env, cmd.Stdin, cmd.Stdout, cmd.Stderr = i.env, strings.NewReader(input), &out, &errs
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("hack/ironic/%s: %w\n%s", script, err, errs.String())
	}
	for line := range strings.Lines(out.String()) {
		switch key, value, _ := strings.Cut(strings.TrimSpace(line), "="); key {
		case "IRONIC_ENDPOINT":
			i.Endpoint = value
		case "IRONIC_INSPECTOR_ENDPOINT":
			i.Inspector = value
		}
	}
	return out.String(), nil
}

// Close ends it, and deletes its data.
func (i *Ironic) Close(ctx context.Context) {
	_, _ = i.Run(context.WithoutCancel(ctx), "", "down", "--purge")
	_ = os.RemoveAll(i.dir)
}
