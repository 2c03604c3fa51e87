// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/muster-io/muster/agent-service/internal/domain"
	"github.com/muster-io/muster/agent-service/internal/hardware"
	"github.com/muster-io/muster/agent-service/internal/httpapi"
	"github.com/muster-io/muster/agent-service/internal/image"
)

// programs are the agent's, in a directory: agent-x86_64, agent-aarch64, …; that of this machine's architecture may be called agent. They may come, change and go at any time.
type programs struct {
	directory string

	mu sync.Mutex
	// known are checksums by what was measured.
	known map[measured]string
}

// measured is a file that has not changed since.
type measured struct {
	path       string
	size, time int64
}

// newPrograms takes the directory of this program where none is given.
func newPrograms(directory string) (*programs, error) {
	if directory == "" {
		own, err := os.Executable()
		if err != nil {
			return nil, fmt.Errorf("finding out where the agents are: %w", err)
		}
		directory = filepath.Dir(own)
	}
	return &programs{directory: directory, known: map[measured]string{}}, nil
}

// Open implements httpapi.Programs.
func (p *programs) Open(name string) (*httpapi.Program, error) {
	name = hardware.Architecture(name)
	candidates := []string{"agent-" + name}
	if runtime.GOOS == "linux" && hardware.Architecture(runtime.GOARCH) == name {
		candidates = append(candidates, "agent")
	}
	for _, candidate := range candidates {
		program, err := p.open(filepath.Join(p.directory, candidate))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("reading the agent for %s: %w", name, err)
		}
		return program, nil
	}
	return nil, domain.Refuse(domain.NotFound, "NoAgent", "this service has no agent for %s; put it as agent-%s into the directory that --agent-directory names", name, name)
}

func (p *programs) open(path string) (*httpapi.Program, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	program := &httpapi.Program{File: file}
	if program.SHA256, program.ModTime, err = p.measure(file); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return program, nil
}

// measure is the checksum of a file and when it changed last. The file is read once only until it changes.
func (p *programs) measure(file *os.File) (sum string, changed time.Time, err error) {
	info, err := file.Stat()
	if err != nil {
		return "", time.Time{}, err
	}
	if !info.Mode().IsRegular() {
		return "", time.Time{}, fs.ErrNotExist
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	this := measured{file.Name(), info.Size(), info.ModTime().UnixNano()}
	if sum, known := p.known[this]; known {
		return sum, info.ModTime(), nil
	}
	whole := sha256.New()
	if _, err = io.Copy(whole, file); err == nil {
		_, err = file.Seek(0, io.SeekStart)
	}
	if err != nil {
		return "", time.Time{}, err
	}
	sum = hex.EncodeToString(whole.Sum(nil))
	p.known[this] = sum
	return sum, info.ModTime(), nil
}

// sum is the checksum of the agent for an architecture, and when it changed last; empty if there is none.
func (p *programs) sum(architecture string) (sum string, changed time.Time, err error) {
	program, err := p.Open(architecture)
	if domain.KindOf(err) == domain.NotFound {
		return "", time.Time{}, nil
	}
	if err != nil {
		return "", time.Time{}, err
	}
	return program.SHA256, program.ModTime, program.Close()
}

// checksum is that of the agent for an architecture, empty if there is none.
func (p *programs) checksum(architecture string) (string, error) {
	sum, _, err := p.sum(architecture)
	return sum, err
}

// tell says at the start which machines will have no agent, if they boot a live image of CoreOS.
func (p *programs) tell(log *zap.Logger, live []image.Version) {
	wanted := []string{hardware.Architecture(runtime.GOARCH)}
	if len(live) > 0 {
		wanted = nil
	}
	for _, version := range live {
		wanted = append(wanted, hardware.Architecture(version.Architecture))
	}
	slices.Sort(wanted)
	for _, name := range slices.Compact(wanted) {
		if sum, _, err := p.sum(name); err != nil || sum == "" {
			log.Warn("there is no agent for live images of CoreOS", zap.String("architecture", name), zap.String("directory", p.directory), zap.Error(err))
		}
	}
}
