// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package agentclassification

import (
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/muster-io/muster/agent-service/internal/query"
	agentv1 "github.com/muster-io/muster/apis/agentinstall/v1beta1"
)

func TestMain(m *testing.M) {
	if !query.Serve() {
		os.Exit(m.Run())
	}
}

func TestQueries(t *testing.T) {
	class := func(name, key, query string) agentv1.AgentClassification {
		return agentv1.AgentClassification{
			ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)}, Spec: agentv1.AgentClassificationSpec{LabelKey: key, LabelValue: name, Query: query},
		}
	}
	deleted := class("deleted", "gone", "true")
	deleted.DeletionTimestamp = new(metav1.Now())
	labels, err := NewQueries(clocktesting.NewFakePassiveClock(time.Unix(1_800_000_000, 0))).Labels(t.Context(), []agentv1.AgentClassification{
		class("small", "size", ".cpu.count < 8"), class("medium", "size", ".cpu.count >= 8"), class("large", "size", ".cpu.count >= 16"),
		class("fast", "disk", `[.disks[] | select(.driveType == "SSD")] | length > 0`), class("text", "kind", ".hostname"), class("nothing", "none", "empty"),
		class("broken", "odd", ".["), class("endless", "loop", "def f: f; f"), class("environment", "secret", "env | length == 0"), deleted,
	}, &agentv1.HostInventory{Hostname: "n", CPU: agentv1.CPU{Count: 16}, Disks: []agentv1.Disk{{DriveType: "SSD"}}})
	require.NoError(t, err)
	prefix := agentv1.ClassificationPrefix
	assert.Equal(t, map[string]string{
		prefix + "size": "large", prefix + "disk": "fast", prefix + "kind": "QUERYERROR-text", prefix + "none": "QUERYERROR-nothing", prefix + "odd": "QUERYERROR-broken",
		prefix + "loop": "QUERYERROR-endless", prefix + "secret": "environment",
	}, labels)
}

// TestAQueryThatTakesTooMuchIsSuspended: each Agent of the namespace would wait for it, and those of all others behind them.
func TestAQueryThatTakesTooMuchIsSuspended(t *testing.T) {
	now := clocktesting.NewFakeClock(time.Unix(1_800_000_000, 0))
	queries := NewQueries(now)
	class := agentv1.AgentClassification{ObjectMeta: metav1.ObjectMeta{Name: "c", UID: "c"}, Spec: agentv1.AgentClassificationSpec{
		LabelKey: "k", LabelValue: "v", Query: "def f: if .cpu.count == 16 then f else true end; f",
	}}
	is := func(count int64, want string) {
		t.Helper()
		labels, err := queries.Labels(t.Context(), []agentv1.AgentClassification{class}, &agentv1.HostInventory{CPU: agentv1.CPU{Count: count}})
		require.NoError(t, err)
		assert.Equal(t, map[string]string{agentv1.ClassificationPrefix + "k": want}, labels)
	}
	is(8, "v")
	is(16, "QUERYERROR-c")
	is(8, "QUERYERROR-c")
	now.Step(suspended)
	is(8, "v")
	is(16, "QUERYERROR-c")
	class.Spec.Query = ".cpu.count == 16"
	is(16, "v")
}
