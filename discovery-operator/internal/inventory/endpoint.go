// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package inventory

import "fmt"

// Address says which Ironic a resource reads, and with which credentials. Its parts are only compared, but for the name.
type Address struct {
	// Endpoint is the name for people, without credentials.
	Endpoint string
	// Ironic is the same for all who ask one Ironic, however they write it.
	Ironic string
	// View is the same for those to whom that Ironic shows the same machines, once it has accepted their credentials.
	View string
	// Session is the same for all that use the same credentials.
	Session string
	// Unverified says that the certificate is not verified.
	Unverified bool
	// Shared says that the administrator lets this namespace share Ironics with others.
	Shared bool
}

// Problem is why Ironic cannot be read or changed, in the words of a condition.
type Problem string

// Problems. The first group concerns the endpoint as a whole, the second one node.
const (
	ProblemUnreachable Problem = "EndpointUnreachable"
	ProblemTimedOut    Problem = "EndpointTimedOut"
	ProblemCredentials Problem = "CredentialsRefused"
	ProblemNoSecret    Problem = "CredentialsMissing"
	ProblemTooOld      Problem = "APITooOld"
	ProblemInvalid     Problem = "AnswerInvalid"
	ProblemNoEndpoint  Problem = "EndpointMissing"
	ProblemNotShared   Problem = "EndpointNotShared"

	ProblemNotFound Problem = "NotFound"
	ProblemBusy     Problem = "Busy"
	ProblemRefused  Problem = "Refused"
	// ProblemFull says that Ironic does as much at once as it may, and works with other nodes.
	ProblemFull Problem = "Full"
)

// EndpointError is an error of Ironic, or on the way to it, without credentials in any part of it.
type EndpointError struct {
	Problem Problem
	// Text says what was attempted and what came back.
	Text string
}

// Error returns the text.
func (e *EndpointError) Error() string { return e.Text }

// Is makes errors.Is compare the problem alone.
func (e *EndpointError) Is(target error) bool {
	t, ok := target.(*EndpointError)
	return ok && t.Problem == e.Problem
}

// Errors to compare with.
var (
	ErrNotFound = &EndpointError{Problem: ProblemNotFound, Text: "not found"}
	ErrBusy     = &EndpointError{Problem: ProblemBusy, Text: "busy"}
	ErrRefused  = &EndpointError{Problem: ProblemRefused, Text: "refused"}
	ErrFull     = &EndpointError{Problem: ProblemFull, Text: "full"}
)

// Failf makes an EndpointError.
func Failf(p Problem, format string, args ...any) *EndpointError {
	return &EndpointError{Problem: p, Text: fmt.Sprintf(format, args...)}
}
