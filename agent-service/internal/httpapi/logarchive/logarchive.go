// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package logarchive answers with the logs of one host or many, without all of these in memory.
package logarchive

import (
	"archive/tar"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/muster-io/muster/agent-service/internal/domain"
)

// Sizes of parts of a tar: what is before each file and what a file is a multiple of, and the end.
const (
	block = 512
	end   = 2 * block
)

// Source has archives of logs, of up to 64 MiB each.
type Source struct {
	// Read returns one of them.
	Read func(name string) ([]byte, error)
	// Turn is taken for as long as one is in memory: all who download share them.
	Turn func() (release func(), err error)
}

// pass reads an archive and hands it to write in a turn.
func (s *Source) pass(name string, write func(content []byte) error) error {
	release, err := s.Turn()
	if err != nil {
		return err
	}
	defer release()
	content, err := s.Read(name)
	if err != nil {
		return err
	}
	return write(content)
}

// One is an archive of logs as it is.
type One struct {
	Source
	// Log is its name.
	Log string
}

// VisitDownloadClusterLogsResponse implements api.DownloadClusterLogsResponseObject. An error before the first byte leaves the answer to the caller.
func (o *One) VisitDownloadClusterLogsResponse(w http.ResponseWriter) error {
	return o.pass(o.Log, func(content []byte) error {
		begin(w.Header(), strings.ReplaceAll(o.Log, "/", "_")+".tar.gz", int64(len(content)))
		if _, err := paced(w).Write(content); err != nil {
			return fmt.Errorf("writing logs: %w", err)
		}
		return nil
	})
}

// Archive is a tar of archives of logs. It reads one after the other while it is written: a cluster has as many as there are hosts.
type Archive struct {
	Source
	// Name is that of the file for users.
	Name string
	// Logs are the archives, at least one.
	Logs []domain.FileInfo
}

// VisitDownloadClusterLogsResponse implements api.DownloadClusterLogsResponseObject. An error before the first archive leaves the answer to the caller; one after that
// leaves it shorter than its header says, which no client takes for a whole one.
func (a *Archive) VisitDownloadClusterLogsResponse(w http.ResponseWriter) error {
	out := tar.NewWriter(paced(w))
	for i, f := range a.Logs {
		err := a.pass(f.Name, func(content []byte) error {
			if int64(len(content)) != f.Size {
				return domain.Refuse(domain.Unavailable, "LogsChanged", "a host sends its logs at the moment; try again")
			}
			if i == 0 {
				begin(w.Header(), a.Name, a.length())
			}
			err := out.WriteHeader(&tar.Header{Name: f.Name + ".tar.gz", Size: f.Size, Mode: 0o644, ModTime: f.UpdatedAt})
			if err == nil {
				_, err = out.Write(content)
			}
			if err != nil {
				return fmt.Errorf("writing logs: %w", err)
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return out.Close()
}

func (a *Archive) length() int64 {
	length := int64(end)
	for _, f := range a.Logs {
		length += block + (f.Size+block-1)/block*block
	}
	return length
}

func begin(header http.Header, name string, length int64) {
	header.Set("Content-Type", "application/octet-stream")
	header.Set("Content-Length", strconv.FormatInt(length, 10))
	header.Set("Content-Disposition", `attachment; filename="`+name+`"`)
	header.Set("Last-Modified", time.Now().UTC().Format(http.TimeFormat))
}
