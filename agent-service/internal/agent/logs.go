// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"mime/multipart"
	"net/http"
	"regexp"
	"sync"
	"syscall"
	"time"

	"github.com/google/uuid"

	"github.com/muster-io/muster/agent-service/api"
)

const (
	// maxLog bounds each log of an archive: the newest bytes are kept.
	maxLog = 1 << 20
	// readAll reads the kernel's messages and leaves them there (klogctl).
	readAll = 3
)

var tokenArgument = regexp.MustCompile(`muster\.token=\S*`)

// withoutToken takes the image's token out of the kernel's command line.
func withoutToken(line []byte) []byte {
	return tokenArgument.ReplaceAll(line, []byte("muster.token=…"))
}

// tail keeps the newest bytes that were written to it.
type tail struct {
	mu   sync.Mutex
	kept []byte
}

// Write implements io.Writer.
func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.kept = append(t.kept, p...)
	if surplus := len(t.kept) - maxLog; surplus > 0 {
		t.kept = append(t.kept[:0], t.kept[surplus:]...)
	}
	return len(p), nil
}

func (t *tail) bytes() []byte {
	t.mu.Lock()
	defer t.mu.Unlock()
	return bytes.Clone(t.kept)
}

// Logs implements Machine.
func (m *Real) Logs() map[string][]byte {
	logs := map[string][]byte{}
	if m.Log != nil {
		logs["agent.log"] = m.Log.bytes()
	}
	messages := make([]byte, maxLog)
	if n, err := syscall.Klogctl(readAll, messages); err == nil {
		// The command line is among them, and may hold the image's token.
		logs["kernel.log"] = withoutToken(messages[:n])
	}
	return logs
}

// Logs implements Machine.
func (g *Generated) Logs() map[string][]byte {
	return map[string][]byte{"agent.log": fmt.Appendf(nil, "generated machine %d\n", g.Number)}
}

// sendLogs packs the machine's logs and sends them to the cluster that it is bound to.
func (a *Agent) sendLogs(ctx context.Context, step api.Step) error {
	var request struct {
		ClusterID uuid.UUID `json:"cluster_id"`
	}
	if err := arguments(step, &request); err != nil {
		return err
	}
	archive, err := packLogs(a.identity.HostID.String(), a.Machine.Logs(), time.Now())
	if err != nil {
		return fmt.Errorf("packing the logs: %w", err)
	}
	return a.insist(ctx, func() error { return a.Connection.SendLogs(ctx, request.ClusterID, a.identity.HostID, archive) })
}

func packLogs(directory string, logs map[string][]byte, at time.Time) ([]byte, error) {
	var packed bytes.Buffer
	compressor := gzip.NewWriter(&packed)
	archive := tar.NewWriter(compressor)
	for name, content := range logs {
		err := archive.WriteHeader(&tar.Header{Name: directory + "/" + name, Mode: 0o644, Size: int64(len(content)), ModTime: at})
		if err != nil {
			return nil, err
		}
		if _, err := archive.Write(content); err != nil {
			return nil, err
		}
	}
	err := errors.Join(archive.Close(), compressor.Close())
	return packed.Bytes(), err
}

// SendLogs sends an archive of logs.
func (c *Connection) SendLogs(ctx context.Context, cluster, host uuid.UUID, archive []byte) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	var body bytes.Buffer
	form := multipart.NewWriter(&body)
	file, err := form.CreateFormFile("upfile", "logs.tar.gz")
	if err == nil {
		_, err = file.Write(archive)
	}
	if err := errors.Join(err, form.Close()); err != nil {
		return err
	}
	params := &api.UploadLogsParams{LogsType: "host", InfraEnvID: &c.infraEnv, HostID: &host}
	response, err := c.client.UploadLogsWithBody(ctx, cluster, params, form.FormDataContentType(), &body) //nolint:bodyclose // answered closes it
	return answered(response, err, http.StatusNoContent, nil)
}
