// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package environment

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
)

// Guard is a process of its own that cleans up when this one has ended or says so, also when this one was killed: it waits for the end of a pipe.
type Guard struct {
	cmd  *exec.Cmd
	pipe io.WriteCloser
}

// removeDirectory ends what still runs out of a directory, then removes it. Programs are recognised by their names too, so that an editor that has a log open lives on.
const removeDirectory = `
dir=$1
for round in 1 2 3; do
  left=
  for p in /proc/[0-9]*; do
    words=$({ tr '\0' ' ' <"$p/cmdline"; } 2>/dev/null) || continue
    case "$words" in *"$dir"*) ;; *) continue ;; esac
    program=${words%% *}
    case "${program##*/}" in
      etcd|kube-apiserver|kube-controller-manager|controlplane|*-operator|agent-service|agent) kill -9 "${p#/proc/}" 2>/dev/null && left=1 ;;
    esac
  done
  [ -n "$left" ] || break
  sleep 0.1
done
rm -rf "$dir"
`

// guardDirectory makes a Guard that removes a directory and what runs out of it.
func guardDirectory(dir string) (*Guard, error) { return startGuard(removeDirectory, dir) }

// startGuard makes a Guard that runs a shell script with arguments.
func startGuard(script string, args ...string) (*Guard, error) {
	cmd := exec.Command("sh", append([]string{"-c", "cat >/dev/null\n" + script, "guard"}, args...)...) //nolint:noctx // it must outlive every context
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // an interrupt from the terminal is not for it
	pipe, err := cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("making a pipe: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting the guard: %w", err)
	}
	return &Guard{cmd: cmd, pipe: pipe}, nil
}

// Close lets the guard clean up now, and waits for it.
func (g *Guard) Close() error {
	_ = g.pipe.Close()
	if err := g.cmd.Wait(); err != nil {
		return fmt.Errorf("cleaning up: %w", err)
	}
	return nil
}
