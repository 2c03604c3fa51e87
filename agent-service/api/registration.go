// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package api

import (
	"encoding/json"
	"fmt"
	"net/http"
)

// RegisteredHost is a HostRegistrationResponse with its host in one piece: a service that has a Host need not copy it field by field.
type RegisteredHost struct {
	Host
	NextStepRunnerCommand NextStepRunnerCommand `json:"next_step_runner_command"`
	// Token is for this host alone.
	Token string `json:"token"`
	// Instructions are the first, nil where they were not asked for.
	Instructions *Steps `json:"instructions,omitempty"`
}

// NextStepRunnerCommand is what an agent runs next.
type NextStepRunnerCommand struct {
	Args         []string `json:"args"`
	Command      string   `json:"command"`
	RetrySeconds int      `json:"retry_seconds"`
}

var _ RegisterHostResponseObject = RegisteredHost{}

// VisitRegisterHostResponse implements RegisterHostResponseObject.
func (r RegisteredHost) VisitRegisterHostResponse(w http.ResponseWriter) error {
	body, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("encoding a registration: %w", err)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusCreated)
	_, err = w.Write(body)
	return err
}
