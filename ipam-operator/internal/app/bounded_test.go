// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
)

// converting serves a hook as that of the conversion, over HTTP without TLS.
func converting(t *testing.T, server webhook.Server, hook http.HandlerFunc) (url string) {
	t.Helper()
	server.Register(conversionPath, hook)
	served := httptest.NewServer(server.WebhookMux())
	t.Cleanup(served.Close)
	return served.URL + conversionPath
}

// conversionServer is that of an operator that converts.
func conversionServer(t *testing.T) webhook.Server {
	t.Helper()
	options := testOptions("")
	options.NetworkData, options.WebhookNamespace, options.WebhookBindAddress = true, "muster-ipam-operator", "127.0.0.1:9443"
	c, err := newConversion(options)
	require.NoError(t, err)
	return c.webhookServer()
}

func post(t *testing.T, url string, body io.Reader) (status int, err error) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, body)
	if err != nil {
		return 0, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, err
	}
	return response.StatusCode, response.Body.Close()
}

// A pod that reaches the port of the operator could have it read without end, until it is out of memory.
func TestAConversionReadsNoMoreThanItMay(t *testing.T) {
	var read atomic.Int64
	url := converting(t, conversionServer(t), func(w http.ResponseWriter, r *http.Request) {
		n, err := io.Copy(io.Discard, r.Body)
		read.Store(n)
		if err != nil {
			w.WriteHeader(http.StatusBadRequest)
		}
	})
	status, err := post(t, url, bytes.NewReader(make([]byte, maxReview)))
	require.NoError(t, err)
	assert.Equal(t, http.StatusOK, status)
	status, err = post(t, url, bytes.NewReader(make([]byte, 3*maxReview)))
	assert.True(t, err != nil || status == http.StatusBadRequest, "%d %v", status, err)
	assert.LessOrEqual(t, read.Load(), int64(maxReview))
}

func TestConversionsDoNotCostTogether(t *testing.T) {
	var now, most atomic.Int64
	both := make(chan struct{})
	meet := sync.OnceFunc(func() { close(both) })
	url := converting(t, conversionServer(t), func(http.ResponseWriter, *http.Request) {
		if in := now.Add(1); in > 1 {
			most.Store(in)
			meet()
		}
		select {
		case <-both:
		case <-time.After(200 * time.Millisecond):
		}
		now.Add(-1)
	})
	var group sync.WaitGroup
	for range 2 {
		group.Go(func() {
			status, err := post(t, url, http.NoBody)
			if err != nil {
				t.Error(err)
			}
			assert.Equal(t, http.StatusOK, status)
		})
	}
	group.Wait()
	assert.Zero(t, most.Load(), "requests were served at once")
}

// A client that sends a request and never ends it keeps others waiting for a limited time.
func TestAConversionEndsThatIsSentSlowly(t *testing.T) {
	begun := make(chan struct{}, 2)
	server := &boundedServer{webhook.NewServer(webhook.Options{}), 100 * time.Millisecond}
	url := converting(t, server, func(w http.ResponseWriter, r *http.Request) {
		begun <- struct{}{}
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			w.WriteHeader(http.StatusBadRequest)
		}
	})
	body, slow := io.Pipe()
	t.Cleanup(func() { _ = slow.Close() })
	var group sync.WaitGroup
	group.Go(func() {
		if status, err := post(t, url, body); err == nil {
			assert.Equal(t, http.StatusBadRequest, status)
		}
	})
	_, err := slow.Write([]byte("{"))
	require.NoError(t, err)
	<-begun
	status, err := post(t, url, http.NoBody)
	require.NoError(t, err)
	assert.Equal(t, http.StatusOK, status)
	require.NoError(t, slow.Close())
	group.Wait()
}
