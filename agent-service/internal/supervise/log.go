// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package supervise

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
)

// Log is a file with a bounded size. Full files are kept as Path.1, the newest, to Path.<Keep>; older ones are deleted. All
// of them hold at most MaxBytes × (Keep+1). It is an io.Writer for several goroutines.
type Log struct {
	Path     string
	MaxBytes int64
	Keep     int

	mu   sync.Mutex
	file *os.File
	size int64
}

// Write implements io.Writer. A write is divided only if it is larger than MaxBytes.
func (l *Log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	written := 0
	for len(p) > 0 {
		part := p[:min(int64(len(p)), l.MaxBytes)]
		if err := l.room(int64(len(part))); err != nil {
			return written, err
		}
		n, err := l.file.Write(part)
		written, l.size, p = written+n, l.size+int64(n), p[n:]
		if err != nil {
			return written, err
		}
	}
	return written, nil
}

// room opens the file, and begins a new one if there is no room for n more bytes.
func (l *Log) room(n int64) error {
	if l.file == nil {
		if err := l.open(); err != nil {
			return err
		}
	}
	if l.size == 0 || l.size+n <= l.MaxBytes {
		return nil
	}
	err := l.file.Close()
	l.file = nil
	return errors.Join(err, l.rotate(), l.open())
}

func (l *Log) open() error {
	if err := os.MkdirAll(filepath.Dir(l.Path), 0o755); err != nil { //nolint:gosec // logs of a node, which only root reads
		return err
	}
	file, err := os.OpenFile(l.Path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	info, err := file.Stat()
	if err != nil {
		return errors.Join(err, file.Close())
	}
	l.file, l.size = file, info.Size()
	return nil
}

func (l *Log) rotate() error {
	name := func(n int) string {
		if n == 0 {
			return l.Path
		}
		return fmt.Sprintf("%s.%d", l.Path, n)
	}
	if l.Keep == 0 {
		return os.Remove(l.Path)
	}
	for n := l.Keep; n > 0; n-- {
		if err := os.Rename(name(n-1), name(n)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// Close closes the file; a later Write opens it again.
func (l *Log) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.file == nil {
		return nil
	}
	err := l.file.Close()
	l.file = nil
	return err
}
