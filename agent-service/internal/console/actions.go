// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package console

import (
	"net/http"
	"slices"

	"github.com/google/uuid"
	"github.com/oapi-codegen/nullable"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-io/muster/agent-service/api"
)

// Actions on machines, as forms name them.
const (
	actionBind    = "bind"
	actionMove    = "move"
	actionUnbind  = "unbind"
	actionRole    = "role"
	actionApprove = "approve"
)

var actions = []string{actionBind, actionMove, actionUnbind, actionRole, actionApprove}

// mostSelected is how many machines one action is for.
const mostSelected = 200

// order is an action on some machines.
type order struct {
	Action    string
	ClusterID uuid.UUID
	// Cluster is the name of the cluster that machines are taken to.
	Cluster  string
	Role     string
	Machines []machine
}

// Title says what the action does, with how many machines.
func (o *order) Title() string { return n("action."+o.Action+".title", len(o.Machines), o.target()) }

func (o *order) target() string {
	if o.Action == actionRole {
		return o.Role
	}
	return o.Cluster
}

// readOrder reads what a form asks for, and the machines that it names.
func (v *visit) readOrder() (*order, error) {
	if err := v.r.ParseForm(); err != nil {
		return nil, &refusal{http.StatusBadRequest, t("error.form")}
	}
	o := &order{Action: v.r.PostForm.Get("action"), Role: v.r.PostForm.Get("role")}
	selected := v.r.PostForm["host"]
	switch {
	case !slices.Contains(actions, o.Action):
		return nil, &refusal{http.StatusBadRequest, t("error.form")}
	case len(selected) == 0:
		return nil, &refusal{http.StatusBadRequest, t("action.none")}
	case len(selected) > mostSelected:
		return nil, &refusal{http.StatusBadRequest, t("action.many", mostSelected)}
	}
	if o.Action == actionBind || o.Action == actionMove {
		id, err := uuid.Parse(v.r.PostForm.Get("cluster"))
		if err != nil {
			return nil, &refusal{http.StatusBadRequest, t("action.cluster")}
		}
		c, err := call[api.Cluster](v.api.GetCluster(v.r.Context(), id, &api.GetClusterParams{ExcludeHosts: new(true)}))
		if err != nil {
			return nil, err
		}
		o.ClusterID, o.Cluster = id, c.Name
	}
	envs, _, err := v.infraEnvNames()
	if err != nil {
		return nil, err
	}
	clusters, _, err := v.clusterNames()
	if err != nil {
		return nil, err
	}
	for _, value := range selected {
		infraEnv, host, err := v.machineID(value)
		if err != nil {
			return nil, err
		}
		h, err := call[api.Host](v.api.GetHost(v.r.Context(), infraEnv, host))
		if err != nil {
			return nil, err
		}
		o.Machines = append(o.Machines, newMachine(h, envs, clusters))
	}
	return o, nil
}

// plan is what an action would do, before anything is done.
type plan struct {
	*order
	Answers []answer
	Valid   int
	// Checked is true where the API answered for each machine; there is no dry run of the other actions.
	Checked bool
}

// Summary says how many machines would be valid.
func (p *plan) Summary() string {
	switch {
	case !p.Checked:
		return t("action." + p.Action + ".explained")
	case p.Valid == len(p.Answers):
		return n(p.texts()+".all", len(p.Answers), p.Cluster)
	default:
		return n(p.texts()+".some", len(p.Answers)-p.Valid, len(p.Answers), p.Cluster)
	}
}

// texts begin the keys of what is said about the answers.
func (p *plan) texts() string {
	if p.Action == actionApprove {
		return "approve"
	}
	return "plan"
}

// Column is the title of the answers.
func (p *plan) Column() string { return t(p.texts() + ".answer") }

// Verdict is an answer in a word.
func (p *plan) Verdict(ok bool) string {
	if ok {
		return t(p.texts() + ".valid")
	}
	return t(p.texts() + ".invalid")
}

// answer is what would happen, or happened, to one machine.
type answer struct {
	machine
	OK      bool
	Reasons []string
}

// planAction asks the API what would be, and shows it.
func planAction(v *visit) error {
	o, err := v.readOrder()
	if err != nil {
		return err
	}
	p := &plan{order: o, Checked: o.Action == actionBind || o.Action == actionMove || o.Action == actionApprove}
	for i := range o.Machines {
		m := o.Machines[i]
		check, err := v.check(o, &m)
		if reason, ok := reasonOf(err); ok {
			check.Reasons = []string{reason}
		} else if err != nil {
			return err
		}
		a := answer{machine: m, OK: check.Valid, Reasons: check.Reasons}
		if a.OK {
			p.Valid++
		}
		p.Answers = append(p.Answers, a)
	}
	return v.show("plan", p.Title(), p)
}

// check is the dry run of an action, where there is one.
func (v *visit) check(o *order, m *machine) (api.BindCheck, error) {
	switch o.Action {
	case actionBind, actionMove:
		return call[api.BindCheck](v.api.CheckBindHost(v.r.Context(), m.InfraEnvID, m.ID, api.BindHostParams{ClusterID: o.ClusterID}))
	case actionApprove:
		err := v.approve(m, client.DryRunAll)
		return api.BindCheck{Valid: err == nil}, err
	default:
		return api.BindCheck{Valid: true}, nil
	}
}

// outcome is what an action did, and what undoes it.
type outcome struct {
	*order
	Answers []answer
	Done    int
	Undo    *undo
}

// undo is the action that brings machines back.
type undo struct {
	Action, Cluster, Role string
	Hosts                 []string
}

// applyAction does it, machine by machine: what is refused for one is done for the others.
func applyAction(v *visit) error {
	o, err := v.readOrder()
	if err != nil {
		return err
	}
	out := &outcome{order: o}
	for i := range o.Machines {
		m := o.Machines[i]
		h, err := v.carryOut(o, &m)
		a := answer{machine: m, OK: err == nil}
		if reason, ok := reasonOf(err); ok {
			a.Reasons = []string{reason}
		} else if err != nil {
			return err
		}
		if a.OK {
			out.Done++
			h.Inventory = m.Host.Inventory
			a.Host, a.Badge = h, hostBadge(h.Status)
		}
		out.Answers = append(out.Answers, a)
	}
	out.Undo = o.undo(out.Answers)
	return v.show("outcome", t("outcome.title"), out)
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
func (o *order) undo(answers []answer) *undo {
	u := &undo{Action: undoing[o.Action]}
	for i := range answers {
		if !answers[i].OK {
			continue
		}
		before := &o.Machines[i]
		cluster, role := before.ClusterID.String(), ""
		if o.Action == actionRole {
			cluster, role = "", string(before.Role)
		}
		if len(u.Hosts) > 0 && (cluster != u.Cluster || role != u.Role) {
			return nil
		}
		u.Cluster, u.Role, u.Hosts = cluster, role, append(u.Hosts, answers[i].Value())
	}
	if u.Action == "" || len(u.Hosts) == 0 {
		return nil
	}
	return u
}

// reasonOf is the sentence of a refusal that concerns one machine. The end of a session concerns all of them.
func reasonOf(err error) (string, bool) {
	refused, ok := asRefusal(err)
	if !ok || refused.status == http.StatusUnauthorized || refused.status >= http.StatusInternalServerError {
		return "", false
	}
	return refused.Reason, true
}
