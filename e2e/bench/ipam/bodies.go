// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"strconv"
	"strings"

	"k8s.io/client-go/kubernetes"
)

// bodies are the bodies of requests that the API server read.
type bodies struct{ count, bytes float64 }

func (b bodies) since(earlier bodies) bodies {
	return bodies{b.count - earlier.count, b.bytes - earlier.bytes}
}

// mean is the average size in bytes; zero without a request.
func (b bodies) mean() float64 {
	if b.count == 0 {
		return 0
	}
	return b.bytes / b.count
}

// poolPatches returns the bodies of all patches of pools, those of statuses included.
func (w *testEnv) poolPatches(ctx context.Context) (bodies, error) {
	server, err := kubernetes.NewForConfig(w.Admin)
	if err != nil {
		return bodies{}, fmt.Errorf("making a client: %w", err)
	}
	metrics, err := server.Discovery().RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
	if err != nil {
		return bodies{}, fmt.Errorf("reading the metrics of the API server: %w", err)
	}
	return readBodies(metrics, "ippools", "patch")
}

// readBodies finds the bodies of requests for a resource in the metrics of an API server.
func readBodies(metrics []byte, resource, verb string) (out bodies, err error) {
	labels := fmt.Sprintf("resource=%q,verb=%q} ", resource, verb)
	for lines := bufio.NewScanner(bytes.NewReader(metrics)); lines.Scan(); {
		name, value, ok := strings.Cut(lines.Text(), labels)
		if !ok {
			continue
		}
		name, _, _ = strings.Cut(name, "{")
		field := map[string]*float64{
			"apiserver_request_body_size_bytes_sum": &out.bytes, "apiserver_request_body_size_bytes_count": &out.count,
		}[name]
		if field == nil {
			continue
		}
		if *field, err = strconv.ParseFloat(value, 64); err != nil {
			return out, fmt.Errorf("reading the metrics of the API server: %w", err)
		}
	}
	return out, nil
}
