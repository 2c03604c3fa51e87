// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package httpapi_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// generatedClient sends requests as the published Go client of assisted-service makes them. testdata/generated_client.json has its bodies: a field that the
// client cannot omit (required fields, and every list) is always there, as null where it is not set.
type generatedClient struct {
	*testEnv
	recorded struct {
		NeverOmitted map[string][]string `json:"never_omitted"`
		Requests     []recordedRequest   `json:"requests"`
	}
	values map[string]string
	sent   map[string]bool
}

type recordedRequest struct {
	Name   string          `json:"name"`
	Method string          `json:"method"`
	Path   string          `json:"path"`
	Status int             `json:"status"`
	Model  string          `json:"model"`
	Body   json.RawMessage `json:"body"`
}

func newGeneratedClient(w *testEnv) *generatedClient {
	w.t.Helper()
	c := &generatedClient{testEnv: w, values: map[string]string{}, sent: map[string]bool{}}
	raw, err := os.ReadFile(filepath.Join("testdata", "generated_client.json"))
	require.NoError(w.t, err)
	require.NoError(w.t, json.Unmarshal(raw, &c.recorded))
	return c
}

// send sends the recorded request of a name and requires the answer that the client takes for success.
func (c *generatedClient) send(who caller, name string) answer {
	c.t.Helper()
	for _, r := range c.recorded.Requests {
		if r.Name != name {
			continue
		}
		c.sent[name] = true
		fill := func(text string) string {
			for placeholder, value := range c.values {
				text = strings.ReplaceAll(text, "{"+placeholder+"}", value)
			}
			return text
		}
		var body any
		if r.Body != nil {
			body = fill(string(r.Body))
		}
		a := c.call(who, r.Method, fill(r.Path), body)
		require.Equal(c.t, r.Status, a.status, "%s: %s", name, a.raw)
		return a
	}
	require.Fail(c.t, "no such request was recorded", name)
	return answer{}
}

// TestRecordedRequestsAreThoseOfTheGeneratedClient holds the recorded bodies to the rules that the client's models follow.
func TestRecordedRequestsAreThoseOfTheGeneratedClient(t *testing.T) {
	c := newGeneratedClient(&testEnv{t: t})
	for _, r := range c.recorded.Requests {
		if r.Model == "" {
			assert.Empty(t, r.Body, r.Name)
			continue
		}
		var body map[string]any
		require.NoError(t, json.Unmarshal(r.Body, &body), r.Name)
		fields, known := c.recorded.NeverOmitted[r.Model]
		require.True(t, known, r.Model)
		for _, field := range fields {
			assert.Contains(t, body, field, r.Name)
		}
	}
}

// TestTheModelsOfTheGeneratedClientAreThePublishedOnes compares which fields are never omitted with the published description.
func TestTheModelsOfTheGeneratedClientAreThePublishedOnes(t *testing.T) {
	c, published := newGeneratedClient(&testEnv{t: t}), assisted(t)
	for model, recorded := range c.recorded.NeverOmitted {
		schema := published.Components.Schemas[model]
		require.NotNil(t, schema, model)
		want := append([]string{}, schema.Value.Required...)
		for name, property := range schema.Value.Properties {
			if property.Value.Type.Is("array") {
				want = append(want, name)
			}
		}
		assert.ElementsMatch(t, want, recorded, model)
	}
}

func (c *generatedClient) report(token caller, step, output string) {
	c.t.Helper()
	a := c.call(token, "POST", "/infra-envs/"+c.values["infra_env"]+"/hosts/"+c.values["host"]+"/instructions", map[string]any{"step_type": step, "output": output})
	require.Equal(c.t, 204, a.status, a.raw)
}

// discover registers a machine with two disks.
func (c *generatedClient) discover(admin caller) caller {
	c.t.Helper()
	c.values["host"] = uuid.NewString()
	agent := caller{"X-Secret-Key": c.image(c.values["infra_env"])}
	c.send(agent, "register the host")
	second := `"disks":[{"id":"e","name":"sdb","path":"/dev/sdb","drive_type":"SSD","size_bytes":480000000000,"installation_eligibility":{"eligible":true}},`
	c.report(agent, "inventory", strings.Replace(inventory, `"disks":[`, second, 1))
	require.Contains(c.t, c.call(admin, "GET", "/infra-envs/"+c.values["infra_env"]+"/hosts/"+c.values["host"], nil).text("status"), "-unbound")
	return agent
}

func (c *generatedClient) host() answer {
	c.t.Helper()
	return c.call(c.person("root", "admins"), "GET", "/infra-envs/"+c.values["infra_env"]+"/hosts/"+c.values["host"], nil)
}

// TestTheGeneratedClientKeepsWhatItDoesNotSet leads an InfraEnv, clusters and hosts through a whole life with the requests of the generated client.
func TestTheGeneratedClientKeepsWhatItDoesNotSet(t *testing.T) {
	w := newTestEnv(t)
	c, admin := newGeneratedClient(w), w.person("root", "admins")
	c.values["cluster"] = c.send(admin, "register the cluster without lists").text("id")
	c.values["second"] = c.send(admin, "register the second cluster").text("id")
	c.values["infra_env"] = c.send(admin, "register the infra-env without lists").text("id")

	c.send(admin, "set lists of the infra-env")
	env := c.send(admin, "set another field of the infra-env")
	assert.Contains(t, env.text("kernel_arguments"), "console=ttyS0")
	assert.Contains(t, env.text("static_network_config"), "52:54:00:00:00:01")
	c.send(admin, "set lists of the cluster")
	cluster := c.send(admin, "set another field of the cluster")
	for _, kept := range []string{"10.0.0.100", "10.0.0.101", "10.0.0.0/24", "10.128.0.0/14", "172.30.0.0/16"} {
		assert.Contains(t, cluster.raw, kept)
	}

	agent := c.discover(admin)
	keeps := func(a answer) {
		t.Helper()
		assert.Equal(t, "d", a.text("installation_disk_id"))
		assert.Equal(t, "e", a.text("skip_formatting_disks"))
		assert.Equal(t, "master", a.text("role"))
	}
	c.send(admin, "set lists of the host")
	c.send(admin, "set the installer's arguments")
	c.send(admin, "set the role of the host only")
	c.send(admin, "set no installer's arguments")
	free := c.host()
	keeps(free)
	assert.JSONEq(t, `{"rack":"7"}`, free.text("node_labels"))
	assert.Contains(t, free.text("installer_args"), "--append-karg")

	c.send(admin, "bind the host")
	named := c.send(admin, "name the bound host only")
	keeps(named)
	assert.Equal(t, "node-0", named.text("requested_hostname"))
	c.send(admin, "unbind the host")
	c.send(admin, "bind the host again")
	c.send(admin, "choose disks of the bound host")
	c.send(admin, "move the host")
	c.send(admin, "choose disks after the move")
	keeps(c.send(admin, "set the role after the move only"))
	c.install(admin, agent)

	// Day 2: another machine joins an installed cluster.
	c.discover(admin)
	c.values["imported"] = c.send(admin, "import the installed cluster").text("id")
	c.send(admin, "bind the second host")
	c.report(agent, "domain-resolution", resolutions("three"))
	c.send(admin, "install the second host")
	require.Equal(t, 200, w.call(agent, "PUT", "/infra-envs/"+c.values["infra_env"]+"/hosts/"+c.values["host"]+"/progress", map[string]any{"current_stage": "Done"}).status)
	assert.Equal(t, "added-to-existing-cluster", c.host().text("status"))
	c.clear(admin)
	for _, r := range c.recorded.Requests {
		assert.True(t, c.sent[r.Name], "%s was not sent", r.Name)
	}
}

// resolutions are what a machine finds for the names of a cluster.
func resolutions(cluster string) string {
	var found []string
	for _, name := range []string{"api", "api-int", "console-openshift-console.apps"} {
		found = append(found, `{"domain_name":"`+name+"."+cluster+`.example.com","ipv4_addresses":["10.0.0.9"],"ipv6_addresses":[]}`)
	}
	return `{"resolutions":[` + strings.Join(found, ",") + `]}`
}

// install leads the second cluster through its installation.
func (c *generatedClient) install(admin, agent caller) {
	c.t.Helper()
	c.report(agent, "domain-resolution", resolutions("two"))
	c.send(admin, "install the cluster")
	c.report(agent, "installation-disk-speed-check", `{"path":"/dev/sda","io_sync_duration":4}`)
	c.report(agent, "container-image-availability", `{"images":[{"name":"quay.example.com/muster/installer:1","result":"success"}]}`)
	path := "/infra-envs/" + c.values["infra_env"] + "/hosts/" + c.values["host"]
	steps := c.call(agent, "GET", path+"/instructions?timestamp=1", nil)
	assert.Contains(c.t, steps.raw, `\"boot_device\":\"/dev/sda\"`, "the disk that was chosen, not the one that must not be formatted")
	for _, stage := range []string{"Starting installation", "Rebooting", "Done"} {
		a := c.call(agent, "PUT", path+"/progress", map[string]any{"current_stage": stage})
		require.Equal(c.t, 200, a.status, a.raw)
	}
	c.send(admin, "complete the installation")
	assert.Equal(c.t, "installed", c.host().text("status"))
}

// clear empties what was set, and deletes it.
func (c *generatedClient) clear(admin caller) {
	c.t.Helper()
	env := c.send(admin, "clear lists of the infra-env")
	assert.NotContains(c.t, env.body, "kernel_arguments")
	assert.NotContains(c.t, env.body, "static_network_config")
	cluster := c.send(admin, "clear lists of the cluster")
	for _, list := range []string{"api_vips", "ingress_vips", "machine_networks", "cluster_networks", "service_networks"} {
		assert.Equal(c.t, []any{}, cluster.body[list], list)
	}
	c.discover(admin)
	c.send(admin, "set lists of the host")
	host := c.send(admin, "clear lists of the host")
	for _, list := range []string{"installation_disk_id", "skip_formatting_disks", "node_labels"} {
		assert.NotContains(c.t, host.body, list)
	}
	c.send(admin, "delete the host")
	for _, h := range []string{"second", "imported"} {
		require.Equal(c.t, 204, c.call(admin, "DELETE", "/clusters/"+c.values[h], nil).status)
	}
	c.send(admin, "delete the infra-env")
	c.send(admin, "delete the cluster")
}
