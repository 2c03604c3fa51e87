// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package query asks jq queries of users, in a process of their own: gojq looks at its context between two steps only, and one step of a short query may take any time and any
// amount of memory.
package query

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/itchyny/gojq"
)

// ErrNotBoolean says that a query ends without a result, or with another one than true and false.
var ErrNotBoolean = errors.New("the query does not return true or false")

// question is what the process is asked.
type question struct {
	Query string          `json:"query"`
	Input json.RawMessage `json:"input"`
}

// answer is what it says. The first one says that it is ready.
type answer struct {
	Matches bool   `json:"matches,omitempty"`
	Boolean bool   `json:"boolean,omitempty"`
	Failure string `json:"failure,omitempty"`
}

// Compile compiles a query. The error says what is wrong with one that cannot be read.
func Compile(query string) (*gojq.Code, error) {
	parsed, err := gojq.Parse(query)
	if err == nil {
		var code *gojq.Code
		if code, err = gojq.Compile(parsed); err == nil {
			return code, nil
		}
	}
	return nil, fmt.Errorf("the query cannot be read: %w", err)
}

// answerTo evaluates a query, which sees nothing but its input.
func answerTo(q question) answer {
	code, err := Compile(q.Query)
	if err != nil {
		return answer{Failure: err.Error()}
	}
	var input any
	if err := json.Unmarshal(q.Input, &input); err != nil {
		return answer{Failure: err.Error()}
	}
	result, _ := code.Run(input).Next()
	switch result := result.(type) {
	case bool:
		return answer{Matches: result, Boolean: true}
	case error:
		return answer{Failure: result.Error()}
	default:
		return answer{}
	}
}

// outcome is the answer as its caller wants it.
func (a answer) outcome() (matches bool, err error) {
	switch {
	case a.Failure != "":
		return false, errors.New(a.Failure)
	case !a.Boolean:
		return false, ErrNotBoolean
	default:
		return a.Matches, nil
	}
}
