// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package domain

import (
	"errors"
	"fmt"
	"time"
)

// Kind is a class of refusals. REST answers each with a status code, custom resources with a condition.
type Kind string

// Kinds of refusals.
const (
	// NotFound: unknown, or not the principal's. Both answer alike. REST 404.
	NotFound Kind = "NotFound"
	// Conflict: the state of the object does not allow it now. REST 409.
	Conflict Kind = "Conflict"
	// Invalid: the request can never succeed as it is. REST 400.
	Invalid Kind = "Invalid"
	// Unavailable: the store, or another system that is needed, is away or busy. REST 503 with Retry-After.
	Unavailable Kind = "Unavailable"
	// TooMany: the caller asks for too much at a time. REST 429 with Retry-After.
	TooMany Kind = "TooMany"
)

// Error is a refusal with a reason. Everything else that the service returns is unexpected: REST 500.
type Error struct {
	Kind Kind
	// Reason is PascalCase of a closed set, for programs: HostBoundAlready, ClusterNotAccepting …
	Reason string
	// Message is one sentence for people, without secrets.
	Message string
	// RetryAfter is set with Unavailable and TooMany.
	RetryAfter time.Duration

	cause error
}

// Error implements error.
func (e *Error) Error() string { return e.Message }

// Unwrap returns what lies below, for logs.
func (e *Error) Unwrap() error { return e.cause }

// KindOf is the class of a refusal, empty for nil and for errors that are no refusals.
func KindOf(err error) Kind {
	if refusal, ok := errors.AsType[*Error](err); ok {
		return refusal.Kind
	}
	return ""
}

// Transient reports whether err may be gone when the same is tried again a moment later: it is no refusal, or one of kind Unavailable.
func Transient(err error) bool {
	kind := KindOf(err)
	return err != nil && (kind == "" || kind == Unavailable)
}

// ReasonOf is the reason of a refusal, empty for nil and for errors that are no refusals.
func ReasonOf(err error) string {
	if refusal, ok := errors.AsType[*Error](err); ok {
		return refusal.Reason
	}
	return ""
}

// CauseOf is what lies below a refusal, or the error itself. It is for logs.
func CauseOf(err error) error {
	if refusal, ok := errors.AsType[*Error](err); ok && refusal.cause != nil {
		return refusal.cause
	}
	return err
}

// Refuse makes a refusal.
func Refuse(kind Kind, reason, format string, values ...any) *Error {
	return &Error{Kind: kind, Reason: reason, Message: fmt.Sprintf(format, values...)}
}

// Away is the refusal while the store cannot be reached.
func Away(cause error) *Error {
	return &Error{
		Kind: Unavailable, Reason: "StoreUnavailable", Message: "the database cannot be reached at the moment; try again", RetryAfter: 5 * time.Second, cause: cause,
	}
}

// RefuseUnknown is the refusal of what does not exist, or is not the principal's.
func RefuseUnknown(what, id string) *Error {
	return Refuse(NotFound, what+"NotFound", "%s %s was not found", what, id)
}
