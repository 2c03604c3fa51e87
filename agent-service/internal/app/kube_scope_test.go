// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// scope is the namespaces of one test. A service whose requests pass through it sees nothing of other tests, which use the same API server at the same time.
type scope struct {
	mu         sync.Mutex
	namespaces []string
}

func (s *scope) add(namespace string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.namespaces = append(s.namespaces, namespace)
}

// object is what decides whether a test sees an object.
type object struct {
	Metadata struct{ Namespace string }
}

// shows is true for an object of the test, and for one without a namespace.
func (s *scope) shows(o object) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return o.Metadata.Namespace == "" || slices.Contains(s.namespaces, o.Metadata.Namespace)
}

// transport leaves out objects of other namespaces of what lists and watches of all namespaces return.
func (s *scope) transport(next http.RoundTripper) http.RoundTripper { return scoped{s, next} }

type scoped struct {
	*scope
	next http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (s scoped) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method != http.MethodGet || !ofAllNamespaces(r.URL.Path) {
		return s.next.RoundTrip(r)
	}
	r = r.Clone(r.Context())
	r.Header.Set("Accept", withoutProtobuf(r.Header.Get("Accept")))
	answer, err := s.next.RoundTrip(r)
	if err != nil || answer.StatusCode != http.StatusOK {
		return answer, err
	}
	if watch := r.URL.Query().Get("watch"); watch == "true" || watch == "1" {
		answer.Body = s.filterEvents(answer.Body)
		return answer, nil
	}
	return answer, s.filterItems(answer)
}

// ofAllNamespaces is true for /apis/group/version/kinds and /api/v1/kinds.
func ofAllNamespaces(path string) bool {
	parts := strings.Split(path, "/")
	return len(parts) == 5 && parts[1] == "apis" || len(parts) == 4 && parts[1] == "api"
}

// withoutProtobuf is an Accept header without the encoding that cannot be read here.
func withoutProtobuf(accept string) string {
	kinds := slices.DeleteFunc(strings.Split(accept, ","), func(kind string) bool { return strings.Contains(kind, "protobuf") })
	return strings.Join(kinds, ",")
}

func (s scoped) filterItems(answer *http.Response) error {
	content, err := io.ReadAll(answer.Body)
	_ = answer.Body.Close()
	if err != nil {
		return err
	}
	var list map[string]json.RawMessage
	var items, shown []json.RawMessage
	if err := json.Unmarshal(content, &list); err != nil {
		return err
	}
	if err := json.Unmarshal(list["items"], &items); err != nil {
		return err
	}
	shown = make([]json.RawMessage, 0, len(items))
	for _, item := range items {
		var of object
		if err := json.Unmarshal(item, &of); err != nil {
			return err
		}
		if s.shows(of) {
			shown = append(shown, item)
		}
	}
	if list["items"], err = json.Marshal(shown); err != nil {
		return err
	}
	if content, err = json.Marshal(list); err != nil {
		return err
	}
	answer.Body, answer.ContentLength = io.NopCloser(bytes.NewReader(content)), int64(len(content))
	answer.Header.Set("Content-Length", strconv.Itoa(len(content)))
	return nil
}

// filterEvents is the stream of the events of a watch that are shown, each of which is a line. Closing it ends the watch.
// Each service of a test reads the events of all tests, so that an event is parsed only once.
func (s scoped) filterEvents(events io.ReadCloser) io.ReadCloser {
	reader, writer := io.Pipe()
	go func() {
		lines := bufio.NewReader(events)
		for {
			event, err := lines.ReadBytes('\n')
			var of struct{ Object object }
			if err == nil {
				err = json.Unmarshal(event, &of)
			}
			if err == nil && s.shows(of.Object) {
				_, err = writer.Write(event)
			}
			if err != nil {
				_ = writer.CloseWithError(err)
				return
			}
		}
	}()
	return filtered{reader, events}
}

type filtered struct {
	*io.PipeReader
	events io.Closer
}

// Close implements io.Closer.
func (f filtered) Close() error {
	_ = f.PipeReader.Close()
	return f.events.Close()
}
