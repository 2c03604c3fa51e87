// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package domain_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/muster-io/muster/agent-service/internal/domain"
)

func TestTransient(t *testing.T) {
	for given, c := range map[string]struct {
		err  error
		want bool
	}{
		"no error":                         {nil, false},
		"an error that is no refusal":      {errors.New("odd"), true},
		"the store is away":                {domain.Away(errors.New("closed")), true},
		"the same below another error":     {fmt.Errorf("reading: %w", domain.Away(nil)), true},
		"a refusal of what is asked for":   {domain.Refuse(domain.Invalid, "Odd", "odd"), false},
		"a refusal because of the state":   {domain.Refuse(domain.Conflict, "Busy", "busy"), false},
		"what is asked for does not exist": {domain.RefuseUnknown("host", "h"), false},
	} {
		t.Run(given, func(t *testing.T) { assert.Equal(t, c.want, domain.Transient(c.err)) })
	}
}
