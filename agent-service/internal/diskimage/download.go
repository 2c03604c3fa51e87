// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package diskimage

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"
)

const (
	// resumptions is how often in a row a download that is cut off is gone on with before it counts as failed.
	resumptions = 8
	// firstPause and longestPause are before each of them; the pauses double.
	firstPause, longestPause = time.Second, 30 * time.Second
)

// Download reads from a web server and goes on where it was when the connection is cut off, or the server away for a while.
type Download struct {
	ctx     context.Context //nolint:containedctx // a Reader has no other way to end
	client  *http.Client
	address string

	body io.ReadCloser
	// version is how the server names what it sent: the rest must be of the same.
	version string
	// total is the length in bytes, -1 if the server does not say it; come is what was read of it.
	total, come int64
	failures    int
}

// Open begins a download. Its errors name no address, which may carry a token.
func Open(ctx context.Context, client *http.Client, address string) (*Download, error) {
	d := &Download{ctx: ctx, client: client, address: address, total: -1}
	return d, d.insist()
}

// Read implements io.Reader.
func (d *Download) Read(p []byte) (int, error) {
	n, err := d.body.Read(p)
	d.come += int64(n)
	if n > 0 {
		d.failures = 0
	}
	switch {
	case err == nil, errors.Is(err, io.EOF) && (d.total < 0 || d.come >= d.total):
		return n, err
	default:
		_ = d.body.Close()
		return n, d.failed(err)
	}
}

// Close implements io.Closer.
func (d *Download) Close() error { return d.body.Close() }

// failed waits, and goes on unless it has been tried too often.
func (d *Download) failed(err error) error {
	if d.failures++; d.failures > resumptions || d.ctx.Err() != nil {
		return err
	}
	select {
	case <-d.ctx.Done():
		return err
	case <-time.After(min(firstPause<<(d.failures-1), longestPause)):
		return d.insist()
	}
}

// insist asks for what is missing.
func (d *Download) insist() error {
	request, err := http.NewRequestWithContext(d.ctx, http.MethodGet, d.address, nil)
	if err != nil {
		return errors.New("the URL of the image cannot be read")
	}
	if d.come > 0 {
		request.Header.Set("Range", fmt.Sprintf("bytes=%d-", d.come))
		if d.version != "" {
			request.Header.Set("If-Range", d.version)
		}
	}
	response, err := d.client.Do(request)
	if err != nil {
		return d.failed(WithoutURL(err))
	}
	switch {
	case d.come == 0 && response.StatusCode == http.StatusOK:
		d.total = response.ContentLength
		if tag := response.Header.Get("ETag"); !strings.HasPrefix(tag, "W/") { // a weak one does not say that every byte is the same
			d.version = tag
		}
	case response.StatusCode == http.StatusPartialContent && strings.HasPrefix(response.Header.Get("Content-Range"), fmt.Sprintf("bytes %d-", d.come)):
	case response.StatusCode >= http.StatusInternalServerError:
		_ = response.Body.Close()
		return d.failed(errors.New(response.Status))
	case d.come > 0 && response.StatusCode == http.StatusOK:
		_ = response.Body.Close()
		return errors.New("the connection was cut off, and the server does not send the rest of what it began")
	default:
		_ = response.Body.Close()
		return errors.New(response.Status)
	}
	d.body = response.Body
	return nil
}

// WithoutURL leaves the address out of an error: it may hold credentials.
func WithoutURL(err error) error {
	if request, is := errors.AsType[*url.Error](err); is {
		return request.Err
	}
	return err
}
