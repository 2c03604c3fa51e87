// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package console

import (
	"cmp"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/oapi-codegen/nullable"
	"go.uber.org/zap"

	"github.com/muster-io/muster/agent-service/api"
	"github.com/muster-io/muster/agent-service/internal/console/status"
)

// workTime is how long one request carries out an action. The page shows what was done, and asks for the rest with the next request: it keeps the answers so far, so that
// any replica goes on.
const workTime = 500 * time.Millisecond

// Answers of machines, as the page keeps them: nothing for one that is to come, done, or refused before the reason.
const (
	answerDone    = "+"
	answerRefused = "-"
)

// outcome is what an action did so far, and what undoes it.
type outcome struct {
	*order
	Results             []result
	Done, Refused, Left int
	Undo                *undo
}

// result is how the action stands for one machine.
type result struct {
	machine
	// Before is what the action changes, as it was when the action began.
	Before string
	// Answer is kept by the page.
	Answer string
	// Gone is true where the machine cannot be read.
	Gone bool
}

// OK is true where the machine was changed.
func (r *result) OK() bool { return r.Answer == answerDone }

// Reason is why the machine was not changed, empty where it was, or is to come.
func (r *result) Reason() string {
	reason, _ := strings.CutPrefix(r.Answer, answerRefused)
	if r.OK() {
		return ""
	}
	return reason
}

// Progress says in a sentence how far the action is.
func (o *outcome) Progress() string {
	if o.Left > 0 {
		return t("outcome.working", o.Done, len(o.Results), o.Left)
	}
	return t("outcome.done", o.Done, len(o.Results))
}

// Tone is of the sentence.
func (o *outcome) Tone() string {
	switch {
	case o.Refused > 0:
		return status.Warn
	case o.Left > 0:
		return status.Busy
	default:
		return status.OK
	}
}

// undo is the action that brings machines back.
type undo struct {
	Action, Cluster, Role string
	Hosts                 []string
}

// applyAction does it, machine by machine: what is refused for one is done for the others. Where all have their answers, it reads their states again.
func applyAction(v *visit) error {
	o, selected, err := v.readOrder()
	if err != nil {
		return err
	}
	before, answers := v.r.PostForm["before"], v.r.PostForm["answer"]
	begins := len(before)+len(answers) == 0
	if !begins && (len(before) != len(selected) || len(answers) != len(selected)) {
		return &refusal{http.StatusBadRequest, t("error.form")}
	}
	read := v.machineReader()
	out := &outcome{order: o}
	for i, value := range selected {
		m, err := read(value)
		r := result{machine: m}
		if r.Gone = err != nil; r.Gone {
			if r.machine, r.Answer, err = v.unread(value, err); err != nil {
				return err
			}
		}
		if r.Before = o.state(&r.machine); !begins {
			r.Before, r.Answer = before[i], strings.TrimSpace(cmp.Or(answers[i], r.Answer))
		}
		out.Results = append(out.Results, r)
	}
	if err := v.work(out); err != nil {
		return err
	}
	out.count()
	return v.show("outcome", o.Title(), out)
}

// work carries the action out for machines without an answer, at least for one, until workTime is over.
func (v *visit) work(out *outcome) error {
	end := v.Now().Add(workTime)
	for i, worked := 0, false; i < len(out.Results); i++ {
		r := &out.Results[i]
		if r.Answer != "" || worked && !v.Now().Before(end) {
			continue
		}
		worked = true
		if r.Before != out.goal() && out.state(&r.machine) == out.goal() { // by a request whose answer was lost
			r.Answer = answerDone
			continue
		}
		h, err := v.carryOut(out.order, &r.machine)
		if err == nil {
			h.Inventory = r.Host.Inventory
			r.Answer, r.Host, r.Badge = answerDone, h, status.OfHost(h.Status)
			continue
		}
		if r.Answer, err = v.refusedAs(err); err != nil {
			return err
		}
	}
	return nil
}

// refusedAs is the answer for a machine that an error concerns. The end of a session concerns all of them.
func (v *visit) refusedAs(err error) (string, error) {
	refused, ok := asRefusal(err)
	switch {
	case ok && refused.status == http.StatusUnauthorized:
		return "", err
	case ok:
		return answerRefused + refused.Reason, nil
	default:
		v.Log.Error("carrying out an action of the console", zap.Error(err))
		return answerRefused + t("error.internal"), nil
	}
}

// unread is a machine that cannot be read, and its answer.
func (v *visit) unread(value string, cause error) (machine, string, error) {
	infraEnv, host, err := v.machineID(value)
	if err != nil {
		return machine{}, "", err
	}
	answer, err := v.refusedAs(cause)
	return machine{Host: api.Host{ID: host, InfraEnvID: infraEnv}}, answer, err
}

// count counts the results, and finds what undoes them once there are all.
func (o *outcome) count() {
	for i := range o.Results {
		switch r := &o.Results[i]; {
		case r.OK():
			o.Done++
		case r.Answer == "":
			o.Left++
		default:
			o.Refused++
		}
	}
	if o.Left == 0 {
		o.Undo = o.undo(o.Results)
	}
}

// state is what the action changes of a machine.
func (o *order) state(m *machine) string {
	switch o.Action {
	case actionRole:
		return string(m.Role)
	case actionApprove:
		return strconv.FormatBool(m.Approved)
	default:
		return m.ClusterID.String()
	}
}

// goal is the state that the action leads to.
func (o *order) goal() string {
	switch o.Action {
	case actionRole:
		return o.Role
	case actionApprove:
		return strconv.FormatBool(true)
	default:
		return o.ClusterID.String() // none where machines are unbound
	}
}

// carryOut does it with one machine, and returns the host as it is then.
func (v *visit) carryOut(o *order, m *machine) (api.Host, error) {
	if o.Action == actionApprove {
		h := m.Host
		h.Approved = true
		return h, v.approve(m)
	}
	return call[api.Host](v.apply(o, m))
}

func (v *visit) apply(o *order, m *machine) (*http.Response, error) {
	ctx, to := v.r.Context(), api.BindHostParams{ClusterID: o.ClusterID}
	switch o.Action {
	case actionBind:
		return v.api.BindHost(ctx, m.InfraEnvID, m.ID, to)
	case actionMove:
		return v.api.MoveHost(ctx, m.InfraEnvID, m.ID, to)
	case actionUnbind:
		return v.api.UnbindHost(ctx, m.InfraEnvID, m.ID)
	default:
		role := nullable.NewNullableWithValue(api.HostUpdateParamsHostRole(o.Role))
		return v.api.UpdateHost(ctx, m.InfraEnvID, m.ID, api.HostUpdateParams{HostRole: role})
	}
}

// undoing are the actions that undo others.
var undoing = map[string]string{actionBind: actionUnbind, actionMove: actionMove, actionUnbind: actionBind, actionRole: actionRole}

// undo is nil where no action brings the machines back: they had different clusters or roles, or none was changed.
func (o *order) undo(results []result) *undo {
	u := &undo{Action: undoing[o.Action]}
	for i := range results {
		r := &results[i]
		if !r.OK() {
			continue
		}
		cluster, role := r.Before, ""
		if o.Action == actionRole {
			cluster, role = "", r.Before
		}
		if len(u.Hosts) > 0 && (cluster != u.Cluster || role != u.Role) {
			return nil
		}
		u.Cluster, u.Role, u.Hosts = cluster, role, append(u.Hosts, r.Value())
	}
	if u.Action == "" || len(u.Hosts) == 0 || u.Action != actionUnbind && u.Cluster == uuid.Nil.String() {
		return nil
	}
	return u
}
