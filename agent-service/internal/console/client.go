// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package console

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"

	"github.com/muster-io/muster/agent-service/api"
)

// accept turns an answer that is no success into a refusal.
func accept(response *http.Response, err error) (*http.Response, error) {
	if err != nil {
		return nil, fmt.Errorf("calling the API: %w", err)
	}
	if response.StatusCode < 300 {
		return response, nil
	}
	defer response.Body.Close() //nolint:errcheck // it is only read
	var reason api.Error
	_ = json.NewDecoder(io.LimitReader(response.Body, 1<<20)).Decode(&reason)
	return nil, refused(response.StatusCode, reason)
}

// call reads an answer of the API, or the refusal in its place.
func call[T any](response *http.Response, err error) (T, error) {
	found, _, err := page[T](response, err)
	return found, err
}

// page is call for a page of a list; total counts what is on all pages.
func page[T any](response *http.Response, err error) (found T, total int, _ error) {
	if response, err = accept(response, err); err != nil {
		return found, 0, err
	}
	defer response.Body.Close() //nolint:errcheck // it is only read
	if response.StatusCode != http.StatusNoContent {
		if err := json.NewDecoder(response.Body).Decode(&found); err != nil && !errors.Is(err, io.EOF) {
			return found, 0, fmt.Errorf("reading an answer of the API: %w", err)
		}
	}
	total, _ = strconv.Atoi(response.Header.Get("X-Total-Count"))
	return found, total, nil
}

// pass hands an answer of the API to the browser as a file.
func (v *visit) pass(name string, response *http.Response, err error) error {
	if response, err = accept(response, err); err != nil {
		return err
	}
	defer response.Body.Close() //nolint:errcheck // it is only read
	v.w.Header().Set("Content-Type", "application/octet-stream")
	v.w.Header().Set("Content-Disposition", fmt.Sprintf("attachment; filename=%q", name))
	if length := response.Header.Get("Content-Length"); length != "" { // browsers see that a file is not whole
		v.w.Header().Set("Content-Length", length)
	}
	_, err = io.Copy(v.w, response.Body)
	if err != nil {
		v.Log.Sugar().Debugf("handing on %s: %v", name, err)
	}
	return nil // the answer has begun: there is no other one
}

// isStatus is true for a refusal of the API with that status.
func isStatus(err error, status int) bool {
	refused, ok := asRefusal(err)
	return ok && refused.status == status
}

func asRefusal(err error) (*refusal, bool) {
	var refused *refusal
	ok := errors.As(err, &refused)
	return refused, ok
}
