// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package environment

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/muster-io/muster/e2e/checkout"
)

// Kubectl returns the path of kubectl: the one on the PATH, or the one that hack/controlplane builds in the pinned version.
func Kubectl(ctx context.Context) (string, error) {
	if path, err := exec.LookPath("kubectl"); err == nil {
		return path, nil
	}
	build, err := checkout.Path("hack", "controlplane", "build")
	if err != nil {
		return "", err
	}
	out, err := exec.CommandContext(ctx, build, "kubectl").Output()
	if err != nil {
		return "", fmt.Errorf("building kubectl: %w", err)
	}
	return filepath.Join(strings.TrimSpace(string(out)), "kubectl"), nil
}
