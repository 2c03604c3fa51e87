// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package disk

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"
)

// usualStall is how long a server may send nothing, unless a Writer says so.
const usualStall = time.Minute

// guarded is a download that ends when nothing comes.
type guarded struct {
	io.ReadCloser
	ctx    context.Context //nolint:containedctx // its cause says why the download ended
	cancel context.CancelFunc
	timer  *time.Timer
	stall  time.Duration
}

// Read implements io.Reader.
func (g *guarded) Read(p []byte) (int, error) {
	n, err := g.ReadCloser.Read(p)
	if n > 0 {
		g.timer.Reset(g.stall)
	}
	if cause := context.Cause(g.ctx); err != nil && !errors.Is(err, io.EOF) && cause != nil {
		err = cause
	}
	return n, err
}

// Close implements io.Closer.
func (g *guarded) Close() error {
	g.timer.Stop()
	defer g.cancel()
	return g.ReadCloser.Close()
}

// open begins a download, which ends with an error when the server sends nothing for a while.
func (w Writer) open(ctx context.Context, what, address string) (*http.Response, error) {
	g := &guarded{stall: cmp.Or(w.Stall, usualStall)}
	ctx, end := context.WithCancelCause(ctx)
	g.ctx, g.cancel = ctx, func() { end(context.Canceled) }
	g.timer = time.AfterFunc(g.stall, func() { end(fmt.Errorf("the server has sent nothing for %s", g.stall)) })
	resp, err := w.request(ctx, what, address)
	if err != nil {
		g.timer.Stop()
		g.cancel()
		return nil, err
	}
	g.ReadCloser = resp.Body
	resp.Body = g
	return resp, nil
}

func (w Writer) request(ctx context.Context, what, address string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, http.NoBody)
	if err != nil || req.URL.Host == "" {
		return nil, fmt.Errorf("downloading %s: %q is no URL of http or https", what, place(address))
	}
	resp, err := w.Client.Do(req)
	if err != nil {
		if cause, ok := errors.AsType[*url.Error](err); ok {
			err = cause.Err // without the URL, which can have credentials
		}
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		return nil, fmt.Errorf("downloading %s from %s: %w", what, place(address), err)
	}
	if resp.StatusCode != http.StatusOK {
		_ = resp.Body.Close()
		return nil, fmt.Errorf("downloading %s from %s: the server answers %s", what, place(address), resp.Status)
	}
	return resp, nil
}

func (w Writer) download(ctx context.Context, what, address string, limit int64) ([]byte, error) {
	resp, err := w.open(ctx, what, address)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	data, err := io.ReadAll(io.LimitReader(resp.Body, limit+1))
	if err != nil {
		return nil, fmt.Errorf("downloading %s from %s: %w", what, place(address), err)
	}
	if int64(len(data)) > limit {
		return nil, fmt.Errorf("%s at %s is larger than %d bytes", what, place(address), limit)
	}
	return data, nil
}

// place is a URL without user, password and query, which can be secret.
func place(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return "the image's URL"
	}
	u.User, u.RawQuery, u.Fragment = nil, "", ""
	return u.String()
}
