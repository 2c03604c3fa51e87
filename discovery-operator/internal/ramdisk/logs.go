// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package ramdisk

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"
)

// maxLog bounds what is kept of the agent's log, in bytes.
const maxLog = 1 << 20

// logs writes lines, and keeps the last ones.
type logs struct {
	out  io.Writer
	mu   sync.Mutex
	kept []byte
}

func (l *logs) say(text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	line := fmt.Appendf(nil, "ramdisk: %s\n", text)
	_, _ = l.out.Write(line)
	l.kept = append(l.kept, line...)
	l.kept = l.kept[max(0, len(l.kept)-maxLog):]
}

// archive packs the logs as Ironic keeps them: a tar archive, by gzip and in base64.
func (l *logs) archive(kernel []byte) (any, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var text bytes.Buffer
	encoder := base64.NewEncoder(base64.StdEncoding, &text)
	packer := gzip.NewWriter(encoder)
	files := tar.NewWriter(packer)
	var errs []error
	for _, f := range []struct {
		name string
		data []byte
	}{{"ramdisk.log", l.kept}, {"kernel.log", kernel}} {
		errs = append(errs, files.WriteHeader(&tar.Header{Name: f.name, Mode: 0o644, Size: int64(len(f.data)), ModTime: time.Now()}))
		_, err := files.Write(f.data)
		errs = append(errs, err)
	}
	if err := errors.Join(append(errs, files.Close(), packer.Close(), encoder.Close())...); err != nil {
		return nil, fmt.Errorf("packing the logs: %w", err)
	}
	return map[string]any{"system_logs": text.String()}, nil
}
