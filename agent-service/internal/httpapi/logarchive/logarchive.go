// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package logarchive answers with the logs of many hosts, without all of these in memory.
package logarchive

import (
	"archive/tar"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/muster-io/muster/agent-service/internal/domain"
)

// Sizes of parts of a tar: what is before each file and what a file is a multiple of, and the end.
const (
	block = 512
	end   = 2 * block
)

// Archive is a tar of archives of logs. It reads one after the other while it is written: one has up to 64 MiB, and a cluster as many as there are hosts.
type Archive struct {
	// Name is that of the file for users.
	Name string
	// Logs are the archives, at least one.
	Logs []domain.FileInfo
	// Read returns one of them.
	Read func(name string) ([]byte, error)
}

// VisitDownloadClusterLogsResponse implements api.DownloadClusterLogsResponseObject. An error before the first archive leaves the answer to the caller; one after that
// leaves it shorter than its header says, which no client takes for a whole one.
func (a *Archive) VisitDownloadClusterLogsResponse(w http.ResponseWriter) error {
	out := tar.NewWriter(w)
	for i, f := range a.Logs {
		content, err := a.Read(f.Name)
		if err != nil {
			return err
		}
		if int64(len(content)) != f.Size {
			return domain.Refuse(domain.Unavailable, "LogsChanged", "a host sends its logs at the moment; try again")
		}
		if i == 0 {
			a.begin(w.Header())
		}
		err = out.WriteHeader(&tar.Header{Name: f.Name + ".tar.gz", Size: f.Size, Mode: 0o644, ModTime: f.UpdatedAt})
		if err == nil {
			_, err = out.Write(content)
		}
		if err != nil {
			return fmt.Errorf("writing logs: %w", err)
		}
	}
	return out.Close()
}

func (a *Archive) begin(header http.Header) {
	length := int64(end)
	for _, f := range a.Logs {
		length += block + (f.Size+block-1)/block*block
	}
	header.Set("Content-Type", "application/octet-stream")
	header.Set("Content-Length", strconv.FormatInt(length, 10))
	header.Set("Content-Disposition", `attachment; filename="`+a.Name+`"`)
	header.Set("Last-Modified", time.Now().UTC().Format(http.TimeFormat))
}
