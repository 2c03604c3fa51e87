// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package metal_test has discovery-operator and agent-service meet on one API server: discovery-operator manages BareMetalHosts, and agent-service has their machines
// boot the image of an InfraEnv, and switches them with the clusters that pool-operator runs.
package metal_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	agentv1 "github.com/muster-io/muster/apis/agentinstall/v1beta1"
	hivev1 "github.com/muster-io/muster/apis/hive/v1"
	metal3v1 "github.com/muster-io/muster/apis/metal3/v1alpha1"
	"github.com/muster-io/muster/apis/needtest"
	"github.com/muster-io/muster/e2e/checkout"
	"github.com/muster-io/muster/e2e/environment"
	"github.com/muster-io/muster/e2e/fleet"
)

const (
	namespace = "metal"
	// patience is for a busy machine.
	patience, interval = 4 * time.Minute, 100 * time.Millisecond
)

// site is Muster with a rack that its discovery-operator manages.
type site struct {
	*testing.T
	local *environment.Local
	// operators are the names of those that run, and admin is the administrator.
	operators []string
	admin     *rest.Config
	user      client.Client
}

// managing is discovery-operator with further flags, as the owner of the life of hosts.
func managing(more ...string) environment.Operator {
	discovery := environment.DiscoveryOperator()
	before := discovery.Args
	discovery.Args = func(dir string) []string { return append(append(before(dir), "--manage-hosts"), more...) }
	return discovery
}

func newSite(t *testing.T, operators ...environment.Operator) *site {
	t.Helper()
	if testing.Short() {
		t.Skip("needs a control plane")
	}
	live, err := checkout.Path("bin", "live", "live.iso")
	require.NoError(t, err)
	needtest.File(t, live, "there is no live image that discovery images are made of: make live-image builds it")
	log.SetLogger(logr.Discard())
	s := &site{T: t}
	for _, operator := range operators {
		s.operators = append(s.operators, operator.ID())
	}
	s.local, err = environment.NewLocal(t.Context(), environment.LocalOptions{
		Operators: operators, UnsafeNoFsync: true, Say: func(text string) { t.Log(text) },
	})
	require.NoError(t, err)
	t.Cleanup(func() {
		if t.Failed() {
			s.report()
		}
		assert.NoError(t, s.local.Close(context.WithoutCancel(t.Context())))
	})
	s.admin, err = environment.Config(s.local)
	require.NoError(t, err)
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, agentv1.AddToScheme, hivev1.AddToScheme, metal3v1.AddToScheme} {
		require.NoError(t, add(scheme))
	}
	s.user, err = client.New(s.admin, client.Options{Scheme: scheme})
	require.NoError(t, err)
	s.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}})
	return s
}

// report prints the end of what the operators say.
func (s *site) report() {
	for _, operator := range s.operators {
		if text, err := os.ReadFile(s.local.Log(operator)); err == nil {
			s.Logf("%s: …%s", operator, text[max(0, len(text)-8192):])
		}
	}
}

func (s *site) create(o client.Object) {
	s.Helper()
	require.NoError(s, s.user.Create(s.Context(), o))
}

// until waits for what an object says.
func (s *site) until(o client.Object, what string, holds func() bool) {
	s.Helper()
	ok := assert.Eventually(s, func() bool {
		return s.user.Get(s.Context(), client.ObjectKeyFromObject(o), o) == nil && holds()
	}, patience, interval, what)
	require.True(s, ok, "%+v", o)
}

func (s *site) patch(o client.Object, patch string) {
	s.Helper()
	require.NoError(s, s.user.Patch(s.Context(), o, client.RawPatch(types.MergePatchType, []byte(patch))))
}

func (s *site) infraEnv(name string, change ...func(*agentv1.InfraEnvSpec)) *agentv1.InfraEnv {
	s.Helper()
	s.create(&corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "pull"}, Type: corev1.SecretTypeDockerConfigJson,
		Data: map[string][]byte{corev1.DockerConfigJsonKey: []byte(`{"auths":{}}`)},
	})
	env := &agentv1.InfraEnv{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	env.Spec.PullSecretRef.Name = "pull"
	for _, one := range change {
		one(&env.Spec)
	}
	s.create(env)
	s.until(env, "the InfraEnv has an image", func() bool { return agentv1.IsConditionTrue(env.Status.Conditions, agentv1.ConditionImageCreated) })
	return env
}

// discovered is the host of an unregistered machine of the rack.
func (s *site) discovered(machine string, change func(*metal3v1.BareMetalHostDiscoverySpec)) *metal3v1.BareMetalHost {
	s.Helper()
	d := &metal3v1.BareMetalHostDiscovery{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "of-" + machine}}
	d.Spec.ResourceNameTemplate.HardwareDetails = metal3v1.DetailHostname
	d.Spec.Selector = "hardware.hostname == '" + machine + "'"
	d.Spec.Interval = &metav1.Duration{Duration: time.Second}
	change(&d.Spec)
	s.create(d)
	host := &metal3v1.BareMetalHost{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: machine}}
	s.until(host, "the machine is a host", func() bool { return host.HasStatus() && host.Status.HardwareDetails != nil })
	return host
}

// boots waits until Ironic has booted the image of the InfraEnv on the machine of a host.
func (s *site) boots(host *metal3v1.BareMetalHost, env *agentv1.InfraEnv) {
	s.Helper()
	s.until(host, "the host has the image of the InfraEnv", func() bool { return host.Spec.Image != nil })
	assert.Equal(s, env.Status.ISODownloadURL, host.Spec.Image.URL)
	require.NotNil(s, host.Spec.Image.DiskFormat)
	assert.Equal(s, "live-iso", *host.Spec.Image.DiskFormat)
	s.until(host, "Ironic has booted the image", func() bool { return host.Status.Provisioning.State == metal3v1.StateProvisioned })
	require.NotNil(s, host.Status.Provisioning.Image)
	assert.Equal(s, env.Status.ISODownloadURL, host.Status.Provisioning.Image.URL)
	assert.Empty(s, host.Status.ErrorMessage)
}

// registers has the agent in the image register the machine of a host, and waits until its Agent is linked with the host.
func (s *site) registers(host *metal3v1.BareMetalHost, env *agentv1.InfraEnv, id string) *agentv1.Agent {
	s.Helper()
	image, err := fleet.Read(s.Context(), (&net.Dialer{}).DialContext, env.Status.BootArtifacts.InitrdURL)
	require.NoError(s, err)
	machine := &agent{site: s, image: image, token: image.Token, host: id}
	machine.register(map[string]any{
		"hostname": "localhost", "cpu": map[string]any{"architecture": "x86_64", "count": 16}, "memory": map[string]any{"physical_bytes": 64 << 30, "usable_bytes": 63 << 30},
		"interfaces": []any{map[string]any{"name": "eno1", "mac_address": strings.ToUpper(host.Spec.BootMACAddress), "has_carrier": true, "ipv4_addresses": []any{"10.0.0.1/8"}}},
		"disks":      []any{map[string]any{"id": "/dev/sda", "name": "sda", "path": "/dev/sda", "drive_type": "SSD", "size_bytes": 480_000_000_000}},
	})
	linked := &agentv1.Agent{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: id}}
	s.until(linked, "the Agent is linked with the host", func() bool { return linked.Labels[agentv1.BareMetalHostLabel] == host.Name })
	assert.Equal(s, env.Name, linked.Labels[agentv1.InfraEnvLabel])
	assert.True(s, linked.Spec.Approved)
	return linked
}

// agent speaks to the service as the agent in the image of a machine does.
type agent struct {
	*site
	image fleet.Image
	host  string
	token string
}

// call sends a request below the hosts of the InfraEnv.
func (a *agent) call(method, path string, body, into any) {
	a.Helper()
	content, err := json.Marshal(body)
	require.NoError(a, err)
	address := strings.TrimSuffix(a.image.URL, "/") + "/api/assisted-install/v2/infra-envs/" + a.image.InfraEnv + "/hosts" + path
	request, err := http.NewRequestWithContext(a.Context(), method, address, bytes.NewReader(content))
	require.NoError(a, err)
	request.Header.Set("X-Secret-Key", a.token)
	request.Header.Set("Content-Type", "application/json")
	response, err := http.DefaultClient.Do(request)
	require.NoError(a, err)
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	require.NoError(a, err)
	require.Less(a, response.StatusCode, 300, "%s %s: %s", method, path, text)
	if into != nil {
		require.NoError(a, json.Unmarshal(text, into))
	}
}

// register makes the machine known, and reports what it is made of when the service asks.
func (a *agent) register(inventory map[string]any) {
	a.Helper()
	var registered struct {
		Token string `json:"token"`
	}
	a.call(http.MethodPost, "", map[string]any{"host_id": a.host, "discovery_agent_version": "test", "boot_id": "first"}, &registered)
	if registered.Token != "" {
		a.token = registered.Token
	}
	report, err := json.Marshal(inventory)
	require.NoError(a, err)
	require.Eventually(a, func() bool {
		var steps struct {
			Instructions []struct {
				ID   string `json:"step_id"`
				Type string `json:"step_type"`
			} `json:"instructions"`
		}
		a.call(http.MethodGet, "/"+a.host+"/instructions", nil, &steps)
		for _, step := range steps.Instructions {
			if step.Type == "inventory" {
				a.call(http.MethodPost, "/"+a.host+"/instructions", map[string]any{"step_id": step.ID, "step_type": step.Type, "output": string(report)}, nil)
				return true
			}
		}
		return false
	}, patience, interval, "the service does not ask for the inventory")
}

// Unregistered machines are discovered, and labelled for an InfraEnv: agent-service has a host with power control boot the InfraEnv's image, discovery-operator
// has Ironic boot it, and the Agent that registers from there is linked with the host.
func TestADiscoveredMachineBootsTheImageOfItsInfraEnv(t *testing.T) {
	s := newSite(t, managing(), environment.AgentService())
	env := s.infraEnv("rack")
	s.create(&corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "bmc"}, StringData: map[string]string{"username": "admin", "password": "secret"},
	})
	t.Run("its user gives it a management controller and the label", func(t *testing.T) {
		s := &site{T: t, local: s.local, user: s.user}
		host := s.discovered("node-00001", func(*metal3v1.BareMetalHostDiscoverySpec) {})
		s.patch(host, `{"spec":{"bmc":{"address":"redfish://192.0.2.1/redfish/v1/Systems/1","credentialsName":"bmc"}},"metadata":{
			"labels":{"`+agentv1.InfraEnvLabel+`":"`+env.Name+`"},
			"annotations":{"`+agentv1.BMHRoleAnnotation+`":"worker","`+agentv1.BMHHostnameAnnotation+`":"worker-1"}}}`)
		s.boots(host, env)
		linked := s.registers(host, env, "11111111-2222-4333-8444-555555555501")
		assert.Equal(t, "worker", linked.Spec.Role)
		assert.Equal(t, "worker-1", linked.Spec.Hostname)
		// Neither operator takes the other one's decision back.
		s.until(host, "the host is read again", func() bool { return true })
		assert.Equal(t, metal3v1.StateProvisioned, host.Status.Provisioning.State)
		assert.Equal(t, env.Status.ISODownloadURL, host.Spec.Image.URL)
		assert.NotContains(t, host.Annotations, metal3v1.RebootAnnotation)
		assert.True(t, host.Spec.Online)
	})
	t.Run("the template of its discovery does, without a manual step", func(t *testing.T) {
		s := &site{T: t, local: s.local, user: s.user}
		host := s.discovered("node-00002", func(d *metal3v1.BareMetalHostDiscoverySpec) {
			d.HostTemplate.Labels = map[string]metal3v1.TemplateValue{agentv1.InfraEnvLabel: metal3v1.TemplateValue(env.Name)}
			d.HostTemplate.BMC = &metal3v1.BMCTemplate{Address: "ipmi://${bmcAddress}", CredentialsName: "bmc"}
		})
		s.boots(host, env)
		s.registers(host, env, "11111111-2222-4333-8444-555555555502")
	})
	t.Run("a machine without management controller is booted by its user", func(t *testing.T) {
		s := &site{T: t, local: s.local, user: s.user}
		host := s.discovered("node-00003", func(d *metal3v1.BareMetalHostDiscoverySpec) {
			d.HostTemplate.Labels = map[string]metal3v1.TemplateValue{agentv1.InfraEnvLabel: metal3v1.TemplateValue(env.Name)}
		})
		s.registers(host, env, "11111111-2222-4333-8444-555555555503")
		s.until(host, "the host is read again", func() bool { return true })
		assert.Nil(t, host.Spec.Image, "nothing but its user can start it")
	})
}
