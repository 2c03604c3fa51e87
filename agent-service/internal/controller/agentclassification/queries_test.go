// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package agentclassification

import (
	"testing"

	"github.com/stretchr/testify/assert"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	agentv1 "github.com/muster-io/muster/apis/agentinstall/v1beta1"
)

func TestQueries(t *testing.T) {
	class := func(name, key, query string) agentv1.AgentClassification {
		return agentv1.AgentClassification{
			ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)}, Spec: agentv1.AgentClassificationSpec{LabelKey: key, LabelValue: name, Query: query},
		}
	}
	deleted := class("deleted", "gone", "true")
	deleted.DeletionTimestamp = new(metav1.Now())
	labels := NewQueries().Labels(t.Context(), []agentv1.AgentClassification{
		class("small", "size", ".cpu.count < 8"), class("medium", "size", ".cpu.count >= 8"), class("large", "size", ".cpu.count >= 16"),
		class("fast", "disk", `[.disks[] | select(.driveType == "SSD")] | length > 0`), class("text", "kind", ".hostname"), class("nothing", "none", "empty"),
		class("broken", "odd", ".["), class("endless", "loop", "def f: f; f"), class("environment", "secret", "env | length == 0"), deleted,
	}, &agentv1.HostInventory{Hostname: "n", CPU: agentv1.CPU{Count: 16}, Disks: []agentv1.Disk{{DriveType: "SSD"}}})
	prefix := agentv1.ClassificationPrefix
	assert.Equal(t, map[string]string{
		prefix + "size": "large", prefix + "disk": "fast", prefix + "kind": "QUERYERROR-text", prefix + "none": "QUERYERROR-nothing", prefix + "odd": "QUERYERROR-broken",
		prefix + "loop": "QUERYERROR-endless", prefix + "secret": "environment",
	}, labels)
}
