// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/muster-io/muster/agent-service/api"
	"github.com/muster-io/muster/agent-service/internal/agentproto"
)

const (
	// upgradeTime is how long the program may take to arrive, and versionTime how long it may take to say its version.
	upgradeTime = 10 * time.Minute
	versionTime = 10 * time.Second
	// maxProgram is more than any agent has.
	maxProgram = 256 << 20
	// hostTokenVariable hands the host's token to the program that takes over: the image's token may have ended since.
	hostTokenVariable = "AGENT_HOST_TOKEN"
	// label is the extended attribute that lets a program be started as a service.
	label = "security.selinux"
)

// errReplaced ends the agent: another program has taken its place.
var errReplaced = errors.New("another program takes over")

// upgrade puts the agent of the service in the place of this one. An installation is not interrupted: it is upgraded before or after that.
func (a *Agent) upgrade(ctx context.Context, step api.Step) error {
	var wanted agentproto.UpgradeArgs
	if err := arguments(step, &wanted); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, upgradeTime)
	defer cancel()
	program, err := a.Connection.Program(ctx, wanted.Architecture)
	if err != nil {
		return fmt.Errorf("downloading agent %s: %w", wanted.Version, err)
	}
	defer program.Close() //nolint:errcheck // it is only read
	err = a.Machine.Replace(ctx, program, wanted, a.begin)
	if err != nil {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.replaced = false
	}
	return err
}

// begin lets no other step begin, unless the machine is being installed.
func (a *Agent) begin() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, busy := a.running[api.StepTypeInstall]; busy {
		return errors.New("the machine is being installed")
	}
	a.replaced = true
	return nil
}

// Replace implements Machine.
func (m *Real) Replace(ctx context.Context, program io.Reader, wanted agentproto.UpgradeArgs, commit func() error) error {
	own, err := m.program()
	if err != nil {
		return err
	}
	next := own + ".next"
	defer os.Remove(next) //nolint:errcheck // it has been renamed, or is of no use
	if err := save(next, program, wanted.SHA256); err != nil {
		return fmt.Errorf("keeping agent %s: %w", wanted.Version, err)
	}
	keepLabel(own, next)
	if err := says(ctx, next, wanted.Version); err != nil {
		return err
	}
	if err := commit(); err != nil {
		return err
	}
	if err := os.Rename(next, own); err != nil {
		return fmt.Errorf("replacing the agent: %w", err)
	}
	return nil
}

// program is the file that this process runs.
func (m *Real) program() (string, error) {
	if m.Program != "" {
		return m.Program, nil
	}
	own, err := os.Executable()
	if err == nil {
		own, err = filepath.EvalSymlinks(own)
	}
	if err != nil {
		return "", fmt.Errorf("finding the agent's program: %w", err)
	}
	return own, nil
}

// save writes a program with the given checksum.
func save(path string, program io.Reader, sum string) error {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o755) //nolint:gosec // it is a program
	if err != nil {
		return err
	}
	whole := sha256.New()
	_, err = io.Copy(io.MultiWriter(file, whole), io.LimitReader(program, maxProgram))
	if err == nil {
		err = file.Sync()
	}
	if err = errors.Join(err, file.Close()); err != nil {
		return err
	}
	if came := hex.EncodeToString(whole.Sum(nil)); came != sum {
		return fmt.Errorf("its checksum is %s, not %s", came, sum)
	}
	return nil
}

// keepLabel gives a program what SELinux says of another one, where there is such a thing.
func keepLabel(from, to string) {
	value := make([]byte, 256)
	if n, err := unix.Lgetxattr(from, label, value); err == nil {
		_ = unix.Lsetxattr(to, label, value[:n], 0) // without it the program is tried below
	}
}

// says fails unless a program runs on this machine and is of the version.
func says(ctx context.Context, program, version string) error {
	ctx, cancel := context.WithTimeout(ctx, versionTime)
	defer cancel()
	var output bytes.Buffer
	command := exec.CommandContext(ctx, program, "--version")
	command.Stdout = &output
	if err := command.Run(); err != nil {
		return fmt.Errorf("trying agent %s: %w", version, err)
	}
	if found := strings.TrimSpace(output.String()); found != version {
		return fmt.Errorf("trying agent %s: it says that it is %q", version, found)
	}
	return nil
}

// takeOver runs the program that replaced this one in its place, as the same process.
func (m *Real) takeOver(token string) error {
	own, err := m.program()
	if err != nil {
		return err
	}
	environment := append(os.Environ(), hostTokenVariable+"="+token)
	return fmt.Errorf("starting the new agent: %w", syscall.Exec(own, append([]string{own}, os.Args[1:]...), environment)) //nolint:gosec // it was verified
}
