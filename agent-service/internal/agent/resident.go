// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"github.com/muster-io/muster/agent-service/api"
	"github.com/muster-io/muster/agent-service/internal/agentproto"
	"github.com/muster-io/muster/agent-service/internal/diskimage"
)

// maxArtifact is more than any initial RAM disk has.
const maxArtifact = 2 << 30

// Reside asks for the instructions of a system that is installed, with the token of that system, until the machine restarts into the discovery image. Where the token ended,
// the machine was released without being asked: it goes on asking, seldom.
func (a *Agent) Reside(ctx context.Context) error {
	a.resident = true
	defer func() { a.resident = false }()
	for {
		err := a.serve(ctx)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, errDone):
			return nil
		}
		a.Log.Info("the service has no instructions for this system", zap.Stringer("host", a.identity.HostID), zap.Error(err))
		if err := pause(ctx, max(lastBackOff, retryAfter(err))); err != nil {
			return err
		}
	}
}

// load gets the kernel and the initial RAM disk of the discovery image ready.
func (a *Agent) load(ctx context.Context, step api.Step) error {
	var wanted agentproto.BootArtifactsArgs
	if err := arguments(step, &wanted); err != nil {
		return err
	}
	switch {
	case !a.resident:
		return errors.New("this system runs the discovery image")
	case wanted.KernelSHA256 == "" || wanted.InitrdSHA256 == "":
		return errors.New("the service does not state the checksums of the files to start")
	}
	return a.Machine.Load(ctx, wanted)
}

// reboot restarts the machine into the discovery image. A kernel that was loaded before may be gone with a restart of this process or of the machine.
func (a *Agent) reboot(ctx context.Context, step api.Step) error {
	if err := a.load(ctx, step); err != nil {
		return err
	}
	a.committed(step.StepType)
	if err := a.Machine.Boot(ctx); err != nil {
		return fmt.Errorf("starting the discovery image: %w", err)
	}
	return errDone
}

// fetch downloads a file with a checksum.
func fetch(ctx context.Context, client *http.Client, address, sum string, into io.Writer) error {
	from, err := diskimage.Open(ctx, client, address)
	if err != nil {
		return err
	}
	defer func() { _ = from.Close() }()
	whole := sha256.New()
	if _, err := io.Copy(io.MultiWriter(into, whole), io.LimitReader(from, maxArtifact)); err != nil {
		return err
	}
	if came := hex.EncodeToString(whole.Sum(nil)); !strings.EqualFold(came, sum) {
		return fmt.Errorf("its checksum is %s, not %s", came, sum)
	}
	return nil
}

// Load implements Machine: the kernel keeps what it is to start next. Nothing that is not as the service stated gets so far.
func (m *Real) Load(ctx context.Context, wanted agentproto.BootArtifactsArgs) error {
	var files []*os.File
	defer func() {
		for _, file := range files {
			_ = file.Close()
		}
	}()
	for _, part := range []struct{ name, address, sum string }{
		{"kernel", wanted.KernelURL, wanted.KernelSHA256}, {"initrd", wanted.InitrdURL, wanted.InitrdSHA256},
	} {
		fd, err := unix.MemfdCreate(part.name, unix.MFD_CLOEXEC)
		if err != nil {
			return fmt.Errorf("keeping the %s: %w", part.name, err)
		}
		file := os.NewFile(uintptr(fd), part.name)
		files = append(files, file)
		if err := fetch(ctx, m.Client, part.address, part.sum, file); err != nil {
			return fmt.Errorf("downloading the %s of the discovery image: %w", part.name, err)
		}
	}
	if err := unix.KexecFileLoad(int(files[0].Fd()), int(files[1].Fd()), wanted.CommandLine, 0); err != nil {
		return fmt.Errorf("this system does not let another kernel be started: %w", err)
	}
	return nil
}

// Boot implements Machine. Processes are not asked to end: their cluster has released them, and file systems are written.
func (m *Real) Boot(context.Context) error {
	unix.Sync()
	return unix.Reboot(unix.LINUX_REBOOT_CMD_KEXEC)
}
