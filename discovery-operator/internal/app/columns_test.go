// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"encoding/json"
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	metal3v1 "github.com/muster-io/muster/apis/metal3/v1alpha1"
)

// columnsOf are what kubectl get -o wide prints of the objects of a resource: the value of each column, by the name of the object.
func columnsOf(w *testEnv, resource string) map[string]map[string]any {
	w.Helper()
	c, err := rest.HTTPClientFor(w.config)
	require.NoError(w, err)
	request, err := http.NewRequestWithContext(w.Context(), http.MethodGet, w.config.Host+"/apis/metal3.io/v1alpha1/namespaces/"+w.ns+"/"+resource, http.NoBody)
	require.NoError(w, err)
	request.Header.Set("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io")
	response, err := c.Do(request)
	require.NoError(w, err)
	defer func() { _ = response.Body.Close() }()
	require.Equal(w, http.StatusOK, response.StatusCode)
	var table metav1.Table
	require.NoError(w, json.NewDecoder(response.Body).Decode(&table))
	out := map[string]map[string]any{}
	for i := range table.Rows {
		row := map[string]any{}
		for k, column := range table.ColumnDefinitions {
			row[column.Name] = table.Rows[i].Cells[k]
		}
		name, ok := row["Name"].(string)
		require.True(w, ok)
		out[name] = row
	}
	return out
}

// TestColumnsShowWhatHoldsAHost follows a host that waits for approval until it is released, and a machine that waits for the end of a dry run.
func TestColumnsShowWhatHoldsAHost(t *testing.T) {
	w := newTestEnv(t)
	w.enrol(1)
	w.operate()
	d := w.discover("reviewed", func(d *metal3v1.BareMetalHostDiscovery) {
		d.Spec.Mode, d.Spec.Approval = metal3v1.ModeDryRun, metal3v1.ApprovalManual
	})
	w.eventually("the machine is listed", func() bool { return len(w.machines(metal3v1.WaitingForDryRunEnd)) == 1 })
	for _, m := range columnsOf(w, "discoveredmachines") {
		assert.Equal(t, []any{"reviewed", "node-00001", string(metal3v1.MachineWaiting), metal3v1.WaitingForDryRunEnd}, []any{m["Discovery"], m["Host"], m["State"], m["Reason"]})
		assert.Contains(t, m["Message"], "node-00001")
	}
	w.patch(d, `{"spec":{"mode":"Discover"}}`)

	h := w.host("node-00001")
	row := func() map[string]any { return columnsOf(w, "baremetalhosts")[h.Name] }
	assert.Equal(t, "pending", row()["Approval"])
	assert.Equal(t, metal3v1.DiscoveryPausedValue, row()["Held"])
	w.status(d, "it is a host", func(s *metal3v1.BareMetalHostDiscoveryStatus) bool {
		return s.Counts.Hosts == 1 && s.Counts.Waiting == 0
	})
	assert.Equal(t, []any{"True", metal3v1.ReasonDiscovering, float64(1), float64(0)}, func() []any {
		c := columnsOf(w, "baremetalhostdiscoveries")["reviewed"]
		return []any{c["Ready"], c["Reason"], c["Hosts"], c["Waiting"]}
	}())

	w.approveAs("jane", h)
	w.is(h, "it is approved", func() bool { return h.Labels[metal3v1.ApprovalLabel] == "approved" })
	assert.Equal(t, "approved", row()["Approval"])
	assert.Equal(t, metal3v1.DiscoveryPausedValue, row()["Held"], "it waits for credentials")
	w.credentials(h, redfish, true)
	w.released(h)
	assert.Equal(t, "approved", row()["Approval"])
	assert.Empty(t, row()["Held"])
	w.patch(h, `{"metadata":{"annotations":{"`+metal3v1.PausedAnnotation+`":"maintenance"}}}`)
	assert.Equal(t, "maintenance", row()["Held"], "so does the pause of a user")
}
