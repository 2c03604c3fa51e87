// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package reservationplan

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	agentv1 "github.com/muster-io/muster/apis/agentinstall/v1beta1"
)

func TestPlan(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	until := now.Add(15 * time.Minute)
	held, shown, bound, gone := Machine{Held: true}, Machine{Held: true, Shown: true}, Machine{Bound: true}, Machine{}
	for sentence, c := range map[string]struct {
		given Snapshot
		want  Decision
	}{
		"nothing is recorded": {Snapshot{}, Decision{Action: Reserve}},
		"Agents do not say it yet": {Snapshot{Until: until, Machines: []Machine{shown, held}}, Decision{
			Reason: agentv1.ReasonReserving, Message: "1 of 2 machines say that they are reserved", Reserved: 2, After: 15 * time.Minute,
		}},
		"all Agents say it": {Snapshot{Until: until, Machines: []Machine{shown, shown}}, Decision{
			Ready: true, Reason: agentv1.ReasonMachinesReserved, Message: "2 of 2 machines are reserved until 2026-01-02T03:19:05Z", Reserved: 2, After: 15 * time.Minute,
		}},
		"one was bound before it counted: none is kept": {Snapshot{Until: until, Machines: []Machine{shown, bound}}, Decision{
			Action: Release, Reason: agentv1.ReasonReserving, Message: "1 of 2 machines were bound, or went, before the reservation counted: others are chosen",
		}},
		"one went before it counted": {Snapshot{Until: until, Machines: []Machine{shown, gone}}, Decision{
			Action: Release, Reason: agentv1.ReasonReserving, Message: "1 of 2 machines were bound, or went, before the reservation counted: others are chosen",
		}},
		"the time is over before it counted": {Snapshot{Until: now, Machines: []Machine{held}}, Decision{
			Action: Release, Reason: agentv1.ReasonReserving, Message: "0 of 1 machines were bound, or went, before the reservation counted: others are chosen",
		}},
		"some are bound, some are gone": {Snapshot{Until: until, Machines: []Machine{shown, bound, gone}, Confirmed: true}, Decision{
			Ready: true, Reason: agentv1.ReasonMachinesReserved, Message: "1 of 3 machines are reserved until 2026-01-02T03:19:05Z (1 bound, 1 gone)", Reserved: 1, After: 15 * time.Minute,
		}},
		"all are bound": {Snapshot{Until: until, Machines: []Machine{bound, bound}, Confirmed: true}, Decision{
			Ready: true, Reason: agentv1.ReasonMachinesBound, Message: "All machines that were reserved are bound: 2 machines",
		}},
		"all are bound, and stay so after the end": {Snapshot{Until: now, Machines: []Machine{bound}, Confirmed: true}, Decision{
			Ready: true, Reason: agentv1.ReasonMachinesBound, Message: "All machines that were reserved are bound: 1 machine",
		}},
		"the time is over": {Snapshot{Until: now, Machines: []Machine{gone, bound}, Confirmed: true}, Decision{
			Reason: agentv1.ReasonReservationExpired, Message: "The reservation of 2 machines ended at 2026-01-02T03:04:05Z (1 bound): create another AgentReservation",
		}},
		"it was ended": {Snapshot{Until: until, Machines: []Machine{gone}, Confirmed: true}, Decision{
			Reason: agentv1.ReasonReservationEnded, Message: "No machine is reserved any more (1 gone): the reservation was ended over REST, or the machines or the data of the service are gone",
		}},
	} {
		t.Run(sentence, func(t *testing.T) { assert.Equal(t, c.want, Plan(c.given, now)) })
	}
}
