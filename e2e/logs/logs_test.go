// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package logs_test reads what the programs log from their first line to their last.
package logs_test

import (
	"context"
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/muster-io/muster/e2e/environment"
)

const (
	// patience is for operators that ask again after a while, on a machine that runs other tests.
	patience = 2 * time.Minute
	interval = 100 * time.Millisecond
)

func TestMain(m *testing.M) {
	log.SetLogger(logr.Discard())
	os.Exit(m.Run())
}

// last is what each operator logs when the API server has gone: those that lead end, discovery-operator fails to write what it sees, and agent-service goes on
// without custom resources.
var last = map[string]string{
	"pool-operator": `"msg":"ended"`, "ipam-operator": `"msg":"ended"`, "discovery-operator": `"msg":"Reconciler error"`,
	"agent-service": "custom resources are not served at the moment",
}

// elected are the operators with leader election, which tells them that the API server has gone.
func elected() []environment.Operator {
	var out []environment.Operator
	for _, operator := range environment.All() {
		flags := []string{"--leader-elect", "--leader-election-namespace=" + operator.Namespace}
		switch args := operator.Args; operator.Name {
		case "pool-operator":
			operator.Args = func(string) []string {
				return append(flags, "--hosted-runtime=pod", "--hosted-image=muster.local/control-plane:v1")
			}
		case "agent-service":
			operator.Args = func(dir string) []string { return append(args(dir), flags...) }
		case "ipam-operator":
			operator.Args = func(string) []string { return flags }
		}
		out = append(out, operator)
	}
	return out
}

// All that the operators log is JSON while they start, lose the API server and stop; an API server that is away is no reason for a stack trace.
func TestEveryLineIsJSON(t *testing.T) {
	if testing.Short() {
		t.Skip("needs a control plane")
	}
	operators := elected()
	local, err := environment.NewLocal(t.Context(), environment.LocalOptions{Operators: operators, UnsafeNoFsync: true, Prepared: true})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, local.Close(context.WithoutCancel(t.Context()))) })
	discover(t, local)
	local.StopControlPlane()
	for _, operator := range operators {
		require.EventuallyWithT(t, func(c *assert.CollectT) {
			assert.Contains(c, text(c, local, operator), last[operator.Name], operator.Name)
		}, patience, interval)
	}
	for _, operator := range operators {
		local.StopOperator(operator.ID())
		check(t, operator.Name, text(t, local, operator))
	}
}

// discover has discovery-operator look at machines again and again.
func discover(t *testing.T, local *environment.Local) {
	t.Helper()
	config, err := environment.Config(local)
	require.NoError(t, err)
	c, err := client.New(config, client.Options{})
	require.NoError(t, err)
	discovery := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "metal3.io/v1alpha1", "kind": "BareMetalHostDiscovery", "metadata": map[string]any{"namespace": "default", "name": "rack"},
		"spec": map[string]any{"interval": "1s", "resourceNameTemplate": map[string]any{"prefix": "rack-", "hardwareDetails": "serial-number"}},
	}}
	require.NoError(t, c.Create(t.Context(), discovery))
	hosts := &unstructured.UnstructuredList{Object: map[string]any{"apiVersion": "metal3.io/v1alpha1", "kind": "BareMetalHostList"}}
	require.EventuallyWithT(t, func(collect *assert.CollectT) {
		require.NoError(collect, c.List(t.Context(), hosts))
		assert.NotEmpty(collect, hosts.Items)
	}, patience, interval)
}

func text(t require.TestingT, local *environment.Local, operator environment.Operator) string {
	text, err := os.ReadFile(local.Log(operator.ID()))
	require.NoError(t, err)
	return string(text)
}

// check holds that each line is an object with time, level and message, and without a stack trace.
func check(t *testing.T, operator, text string) {
	t.Helper()
	lines := 0
	for line := range strings.Lines(text) {
		var entry struct {
			Time       string `json:"ts"`
			Level      string `json:"level"`
			Message    string `json:"msg"`
			Stacktrace string `json:"stacktrace"`
		}
		require.NoError(t, json.Unmarshal([]byte(line), &entry), "%s: %s", operator, line)
		_, err := time.Parse(time.RFC3339Nano, entry.Time)
		require.NoError(t, err, "%s: %s", operator, line)
		assert.NotEmpty(t, entry.Level, "%s: %s", operator, line)
		assert.NotEmpty(t, entry.Message, "%s: %s", operator, line)
		assert.Empty(t, entry.Stacktrace, "%s: %s", operator, line)
		lines++
	}
	assert.Positive(t, lines, operator)
}
