// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package service does what users and machines ask for, in transactions on a Store. REST and the controllers of custom resources call nothing else.
package service

import (
	"time"

	"github.com/muster-io/muster/agent-service/internal/agentproto"
)

// MaxHold is how long an agent's poll is held open at most: routers cut idle connections at about 30 s.
const MaxHold = 25 * time.Second

// Instructions are the answer to an agent's poll.
type Instructions struct {
	Steps []agentproto.Step
	// NextSeconds is how long the agent may wait before it asks again.
	NextSeconds int
	// Exit asks the agent to end (it is started again and registers). Never for bind and unbind.
	Exit bool
	// Revision is of the host's row when these were made.
	Revision int64
	// Ended is true where the token of the poll ended while it was held: there is nothing but the step that stops an installation.
	Ended bool
	// Held is how long the poll was held open.
	Held time.Duration
}
