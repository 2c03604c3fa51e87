// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package httpapi

import (
	"encoding/json"
	"errors"
	"math"
	"net/http"
	"strconv"

	"go.uber.org/zap"

	"github.com/muster-io/muster/agent-service/api"
	"github.com/muster-io/muster/agent-service/internal/domain"
	"github.com/muster-io/muster/agent-service/internal/token"
)

// refusal is an answer of REST itself, not of the service.
type refusal struct {
	status int
	reason string
}

func (r *refusal) Error() string { return r.reason }

func invalid(reason string) error { return &refusal{http.StatusBadRequest, reason} }

var errNotFound = &refusal{http.StatusNotFound, "not found"}

var statuses = map[domain.Kind]int{
	domain.NotFound: http.StatusNotFound, domain.Conflict: http.StatusConflict, domain.Invalid: http.StatusBadRequest, domain.Unavailable: http.StatusServiceUnavailable,
	domain.TooMany: http.StatusTooManyRequests,
}

// status is the HTTP status of an error, and what may be said of it.
func status(err error) (int, string) {
	if own, is := errors.AsType[*refusal](err); is {
		return own.status, own.reason
	}
	if refused, is := errors.AsType[*domain.Error](err); is {
		if code, known := statuses[refused.Kind]; known {
			return code, refused.Message
		}
	}
	for _, bad := range []error{token.ErrMalformed, token.ErrAlgorithm, token.ErrExpired, token.ErrForeign, token.ErrUnverified, token.ErrRevoked} {
		if errors.Is(err, bad) {
			return http.StatusUnauthorized, bad.Error()
		}
	}
	if large, is := errors.AsType[*http.MaxBytesError](err); is {
		return http.StatusRequestEntityTooLarge, "the request is larger than " + strconv.FormatInt(large.Limit, 10) + " bytes"
	}
	if isContext(err) {
		return http.StatusServiceUnavailable, "the request was given up; try again"
	}
	return http.StatusInternalServerError, "something went wrong inside the service; its log says what"
}

// unreadable answers requests whose parameters or body cannot be read.
func (s *server) unreadable(w http.ResponseWriter, r *http.Request, err error) {
	if _, is := errors.AsType[*http.MaxBytesError](err); is {
		s.refuse(w, r, err)
		return
	}
	s.refuse(w, r, invalid(err.Error()))
}

// refuse answers with the form that all errors have. An error after the beginning of an answer is that of a client that went away.
func (s *server) refuse(w http.ResponseWriter, r *http.Request, err error) {
	if answer, is := w.(*begun); is && answer.has {
		s.Log.Debug("an answer did not reach its client", zap.String("path", r.URL.Path))
		return
	}
	code, reason := status(err)
	if code == http.StatusInternalServerError {
		s.Log.Error("a request failed", zap.Error(err), zap.String("method", r.Method), zap.String("path", r.URL.Path))
	}
	body := api.Error{Kind: api.ErrorKindError, ID: int32(code), Href: r.URL.Path, Code: strconv.Itoa(code), Reason: reason} //nolint:gosec // an HTTP status
	// assisted-service has a form of its own for these: its clients read no text as their code.
	if code == http.StatusUnauthorized || code == http.StatusForbidden {
		body.Code, body.Message = code, reason
	}
	if code == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", "Bearer")
	}
	if code == http.StatusServiceUnavailable || code == http.StatusTooManyRequests {
		w.Header().Set("Retry-After", retryAfter(err))
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	if err := json.NewEncoder(w).Encode(body); err != nil {
		s.Log.Debug("an answer did not reach its client", zap.String("path", r.URL.Path))
	}
}

func retryAfter(err error) string {
	if refused, is := errors.AsType[*domain.Error](err); is && refused.RetryAfter > 0 {
		return strconv.Itoa(int(math.Ceil(refused.RetryAfter.Seconds())))
	}
	return "5"
}
