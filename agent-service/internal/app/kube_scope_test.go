// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
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

// shows is true for an object of the test, and for one without a namespace.
func (s *scope) shows(object json.RawMessage) (bool, error) {
	var named struct {
		Metadata struct{ Namespace string }
	}
	if err := json.Unmarshal(object, &named); err != nil {
		return false, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return named.Metadata.Namespace == "" || slices.Contains(s.namespaces, named.Metadata.Namespace), nil
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
		shows, err := s.shows(item)
		if err != nil {
			return err
		}
		if shows {
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

// filterEvents is the stream of the events of a watch that are shown. Closing it ends the watch.
func (s scoped) filterEvents(events io.ReadCloser) io.ReadCloser {
	reader, writer := io.Pipe()
	go func() {
		decoder := json.NewDecoder(events)
		for {
			var event json.RawMessage
			if err := decoder.Decode(&event); err != nil {
				_ = writer.CloseWithError(err)
				return
			}
			var of struct{ Object json.RawMessage }
			err := json.Unmarshal(event, &of)
			shows := false
			if err == nil {
				shows, err = s.shows(of.Object)
			}
			if err == nil && shows {
				_, err = writer.Write(append(event, '\n'))
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
