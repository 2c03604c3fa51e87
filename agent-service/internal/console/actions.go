// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package console

import (
	"net/http"
	"slices"

	"github.com/google/uuid"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-io/muster/agent-service/api"
	"github.com/muster-io/muster/agent-service/internal/console/words"
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
	Machines int
}

// Title says what the action does, with how many machines.
func (o *order) Title() string { return n("action."+o.Action+".title", o.Machines, o.target()) }

func (o *order) target() string {
	if o.Action == actionRole {
		return words.Named("role", o.Role)
	}
	return o.Cluster
}

// readOrder reads what a form asks for, and the values of the machines that it names.
func (v *visit) readOrder() (o *order, selected []string, _ error) {
	if err := v.r.ParseForm(); err != nil {
		return nil, nil, &refusal{http.StatusBadRequest, t("error.form")}
	}
	o, selected = &order{Action: v.r.PostForm.Get("action"), Role: v.r.PostForm.Get("role")}, v.r.PostForm["host"]
	o.Machines = len(selected)
	switch {
	case !slices.Contains(actions, o.Action):
		return nil, nil, &refusal{http.StatusBadRequest, t("error.form")}
	case len(selected) == 0:
		return nil, nil, &refusal{http.StatusBadRequest, t("action.none")}
	case len(selected) > mostSelected:
		return nil, nil, &refusal{http.StatusBadRequest, t("action.many", mostSelected)}
	case o.Action != actionBind && o.Action != actionMove:
		return o, selected, nil
	}
	c, err := v.chosenCluster(v.r.PostForm.Get("cluster"))
	o.ClusterID, o.Cluster = c.ID, c.Name
	return o, selected, err
}

// machineReader returns a function that reads the machine of a value.
func (v *visit) machineReader() func(value string) (machine, error) {
	names := named{noInfraEnvs(), noClusters()}
	return func(value string) (machine, error) {
		infraEnv, host, err := v.machineID(value)
		if err != nil {
			return machine{}, err
		}
		h, err := call[api.Host](v.api.GetHost(v.r.Context(), infraEnv, host))
		if err == nil {
			err = v.read(names, h.InfraEnvID, h.ClusterID)
		}
		return newMachine(h, names), err
	}
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

// answer is what would happen to one machine.
type answer struct {
	machine
	OK      bool
	Reasons []string
	// Gone is true where the machine cannot be read.
	Gone bool
}

// planAction asks the API what would be, and shows it.
func planAction(v *visit) error {
	o, selected, err := v.readOrder()
	if err != nil {
		return err
	}
	read := v.machineReader()
	p := &plan{order: o, Checked: o.Action == actionBind || o.Action == actionMove || o.Action == actionApprove}
	for _, value := range selected {
		infraEnv, host, err := v.machineID(value)
		if err != nil {
			return err
		}
		m, err := read(value)
		gone := err != nil
		var check api.BindCheck
		if gone {
			m = machine{Host: api.Host{ID: host, InfraEnvID: infraEnv}}
		} else {
			check, err = v.check(o, &m)
		}
		if reason, ok := reasonOf(err); ok {
			check.Reasons = []string{reason}
		} else if err != nil {
			return err
		}
		a := answer{machine: m, OK: check.Valid, Reasons: check.Reasons, Gone: gone}
		if a.OK {
			p.Valid++
		}
		p.Answers = append(p.Answers, a)
	}
	return v.show("plan", p.Title(), p)
}

// afterAction leads to the machines a browser that opens the address of an action once more, such as from its history or a bookmark.
func afterAction(v *visit) error { return v.redirect("/machines") }

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

// reasonOf is the sentence of a refusal that concerns one machine. The end of a session concerns all of them.
func reasonOf(err error) (string, bool) {
	refused, ok := asRefusal(err)
	if !ok || refused.status == http.StatusUnauthorized || refused.status >= http.StatusInternalServerError {
		return "", false
	}
	return refused.Reason, true
}
