// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package structure

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Reasons why a status is not written by server-side apply. That a decision holds only for the version that it was made from is none: an
// apply carries a resourceVersion, too.
const (
	// foreign: statuses of an earlier or another operator are taken over, whose fields have another owner, and an apply could not clear them.
	foreign = "fields of an earlier writer"
	// shared: another controller of the operator writes the same condition, so that neither owns it.
	shared = "condition of two controllers"
	// large: the status has a map with an entry for each address, machine or cluster, and an apply would send and track all of them.
	large = "large map"
)

// patched are the writers of a status that do not use server-side apply, each with its reason.
var patched = map[string]string{
	"agent-service/internal/controller/agent/controller.go":               foreign,
	"agent-service/internal/controller/agentclusterinstall/controller.go": foreign,
	"agent-service/internal/controller/infraenv/controller.go":            foreign,
	"discovery-operator/internal/controller/baremetalhost/report.go":      foreign,
	"ipam-operator/internal/controller/ipaddressclaim/kind.go":            foreign,
	"ipam-operator/internal/controller/ipclaimset/execute.go":             shared,
	"ipam-operator/internal/controller/ippool/execute.go":                 large,
	"ipam-operator/internal/controller/metal3data/execute.go":             foreign,
	"ipam-operator/internal/controller/metal3dataclaim/execute.go":        foreign,
	"ipam-operator/internal/controller/metal3datatemplate/controller.go":  large,
	"ipam-operator/internal/engine/kind.go":                               foreign,
	"pool-operator/internal/controller/clusterpool/ticket.go":             large,
}

// Reasons why a controller has no pure plan.
const (
	// copies: it brings an object and the service of agent-service into agreement, and the service decides.
	copies = "the service decides"
	// single: it decides from one object alone.
	single = "decides from one object"
	// counts: its status counts objects.
	counts = "counts objects"
	// connects: it keeps a connection to the cluster of a host for as long as the host is in it, or has the cluster release it.
	connects = "talks to the cluster of a host"
	// claims: the engine decides, which claims of several kinds share.
	claims = "internal/engine decides"
)

// unplanned are the controllers that have no pure plan, each with its reason.
var unplanned = map[string]string{
	"agent-service/internal/controller/agent":               copies,
	"agent-service/internal/controller/agentclassification": counts,
	"agent-service/internal/controller/infraenv":            copies,
	"agent-service/internal/controller/nodes":               connects,
	"agent-service/internal/controller/release":             connects,
	"ipam-operator/internal/controller/ipaddress":           claims,
	"ipam-operator/internal/controller/ipaddressclaim":      claims,
	"ipam-operator/internal/controller/ippool":              single,
	"ipam-operator/internal/controller/metal3datatemplate":  single,
}

func TestAControllerHasAPurePlanUnlessThereIsAReason(t *testing.T) {
	found, err := Unplanned("../../..")
	require.NoError(t, err)
	assert.Equal(t, slices.Sorted(maps.Keys(unplanned)), found, "decide in a pure package named for the plan, or add the controller with its reason")
}

func TestUnplanned(t *testing.T) {
	const reconcile = "func (r *Reconciler) Reconcile() {}\n"
	for given, c := range map[string]struct {
		text string
		want []string
	}{
		"a controller with a plan": {"import _ \"example.org/o/internal/pplan\"\n" + reconcile, nil},
		"one without":              {"import _ \"example.org/o/internal/planner\"\n" + reconcile, []string{"o/internal/controller/p"}},
		"no controller":            {"func f() {}\n", nil},
	} {
		t.Run(given, func(t *testing.T) {
			got, err := Unplanned(controllerOf(t, "controller.go", c.text))
			require.NoError(t, err)
			assert.Equal(t, c.want, got)
		})
	}
}

func TestAStatusIsWrittenByServerSideApplyUnlessThereIsAReason(t *testing.T) {
	found, err := StatusPatches("../../..")
	require.NoError(t, err)
	assert.Equal(t, slices.Sorted(maps.Keys(patched)), found, "use Status().Apply with a field owner, or add the file with its reason")
}

func TestStepsOfAControllerStandInTheirFiles(t *testing.T) {
	found, err := Misplaced("../../..")
	require.NoError(t, err)
	assert.Empty(t, found)
}

func TestMisplaced(t *testing.T) {
	const steps = "func (r *Reconciler) Reconcile() {}\n\nfunc (r *Reconciler) observe() {}\n"
	for given, c := range map[string]struct {
		file, text string
		want       []string
	}{
		"a small controller in one file": {"controller.go", steps, nil},
		"Reconcile in another file":      {"p.go", steps, []string{"o/internal/controller/p/p.go: Reconcile belongs to controller.go"}},
		"a large controller in one file": {"controller.go", steps + strings.Repeat("\n", MaxOneFile), []string{"o/internal/controller/p/controller.go: observe belongs to observe.go"}},
		"a second reconciler":            {"install.go", "func (r *InstallReconciler) Reconcile() {}\n", nil},
		"a test":                         {"p_test.go", steps, nil},
	} {
		t.Run(given, func(t *testing.T) {
			got, err := Misplaced(controllerOf(t, c.file, c.text))
			require.NoError(t, err)
			assert.Equal(t, c.want, got)
		})
	}
}

func TestStatusPatches(t *testing.T) {
	for given, c := range map[string]struct {
		text string
		want []string
	}{
		"an apply":                  {"func f() { r.Client.Status().Apply(ctx, o) }\n", nil},
		"a patch of a spec":         {"func f() { r.Client.Patch(ctx, o, p) }\n", nil},
		"a patch of a status":       {"func f() { r.Client.Status().Patch(ctx, o, p) }\n", []string{"o/internal/controller/p/p.go"}},
		"an update of a status":     {"func f() { r.Client.Status().Update(ctx, o) }\n", []string{"o/internal/controller/p/p.go"}},
		"a patch of a sub-resource": {"func f() { c.SubResource(\"status\").Patch(ctx, o, p) }\n", []string{"o/internal/controller/p/p.go"}},
	} {
		t.Run(given, func(t *testing.T) {
			got, err := StatusPatches(controllerOf(t, "p.go", c.text))
			require.NoError(t, err)
			assert.Equal(t, c.want, got)
		})
	}
}

// controllerOf is a tree with one file of a controller.
func controllerOf(t *testing.T, name, text string) (root string) {
	t.Helper()
	root = t.TempDir()
	path := filepath.Join(root, "o", "internal", "controller", "p", name)
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
	require.NoError(t, os.WriteFile(path, []byte("package p\n\n"+text), 0o600))
	return root
}
