// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package hoststate_test

import (
	"maps"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	metal3v1 "github.com/muster-io/muster/apis/metal3/v1alpha1"
	"github.com/muster-io/muster/discovery-operator/internal/hoststate"
)

// sum is a checksum of type sha256.
const sum = "c0ffeec0ffeec0ffeec0ffeec0ffeec0ffeec0ffeec0ffeec0ffeec0ffeec0ff"

func deployable(change ...func(*metal3v1.BareMetalHost)) *metal3v1.BareMetalHost {
	h := &metal3v1.BareMetalHost{}
	h.Namespace, h.Name, h.UID = "site", "node-1", "11111111-1111-4111-8111-111111111111"
	h.Spec.Online = true
	h.Spec.Image = &metal3v1.Image{URL: "http://images/a.qcow2", Checksum: sum, ChecksumType: "sha256", DiskFormat: new("qcow2")}
	for _, c := range change {
		c(h)
	}
	return h
}

func TestNextStepOfADeployment(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*metal3v1.BareMetalHost)
		want   map[string]any
		wrong  string
	}{
		"an image with its checksum": {func(*metal3v1.BareMetalHost) {}, map[string]any{
			"image_source": "http://images/a.qcow2", "image_disk_format": "qcow2", "image_os_hash_algo": "sha256", "image_os_hash_value": sum,
		}, ""},
		"a checksum without type is MD5": {func(h *metal3v1.BareMetalHost) {
			h.Spec.Image.Checksum, h.Spec.Image.ChecksumType, h.Spec.Image.DiskFormat = sum[:32], "", nil
		}, map[string]any{
			"image_source": "http://images/a.qcow2", "image_os_hash_algo": "md5", "image_os_hash_value": sum[:32],
		}, ""},
		"Ironic finds the type of a checksum": {func(h *metal3v1.BareMetalHost) { h.Spec.Image.ChecksumType, h.Spec.Image.DiskFormat = "auto", nil }, map[string]any{
			"image_source": "http://images/a.qcow2", "image_checksum": sum,
		}, ""},
		"a live ISO needs no checksum": {func(h *metal3v1.BareMetalHost) {
			h.Spec.Image = &metal3v1.Image{URL: "http://images/a.iso", DiskFormat: new("live-iso")}
		}, map[string]any{"boot_iso": "http://images/a.iso"}, ""},
		"disk and boot mode": {func(h *metal3v1.BareMetalHost) {
			h.Spec.Image = &metal3v1.Image{URL: "http://images/a.iso", DiskFormat: new("live-iso")}
			h.Spec.BootMode = "UEFISecureBoot"
			h.Spec.RootDeviceHints = &metal3v1.RootDeviceHints{DeviceName: "/dev/disk/by-path/x", MinSizeGigabytes: 10, Model: "QEMU", Rotational: new(false)}
		}, map[string]any{
			"boot_iso": "http://images/a.iso", "capabilities": map[string]any{"boot_mode": "uefi", "secure_boot": "true"},
			"root_device": map[string]any{"by_path": "s== /dev/disk/by-path/x", "size": ">= 10", "model": "<in> QEMU", "rotational": "false"},
		}, ""},
		"an image without checksum": {func(h *metal3v1.BareMetalHost) { h.Spec.Image.Checksum = "" }, nil, "set spec.image.checksum"},
		"a method of others": {func(h *metal3v1.BareMetalHost) {
			h.Spec.CustomDeploy = &metal3v1.CustomDeploy{Method: "install_x"}
		}, nil, "remove spec.customDeploy"},
	} {
		d, err := hoststate.DeploymentOf(deployable(c.change))
		if c.wrong != "" {
			require.ErrorContains(t, err, c.wrong, name)
			continue
		}
		require.NoError(t, err, name)
		assert.Equal(t, c.want, d.Info, name)
	}
}

// deployed is a node that knows what the host of these tests wants.
func deployed(state string, change ...func(*hoststate.Node)) hoststate.Node {
	d, _ := hoststate.DeploymentOf(deployable())
	n := hoststate.Node{
		UUID: "node", State: state, Driver: hoststate.ManualDriver, PowerBy: hoststate.ManualPower, Deploy: hoststate.DirectDeploy, Clean: new(true),
		Instance: d.Instance, Deployment: map[string]any{"image_url": "added by Ironic"},
	}
	maps.Copy(n.Deployment, d.Info)
	for _, c := range change {
		c(&n)
	}
	return n
}

func TestADeploymentStepByStep(t *testing.T) {
	again, silent := hoststate.Past{Reported: true}, hoststate.Past{Silent: true}
	taken := func(n *hoststate.Node) { n.TokenTaken = true }
	for name, c := range map[string]struct {
		node   hoststate.Node
		past   hoststate.Past
		do     hoststate.Move
		ask    string
		reason string
	}{
		"a discovered node gets the driver of a machine without controller": {node: deployed("enroll", func(n *hoststate.Node) { n.Driver = "fake-hardware" }), do: hoststate.Enrol},
		"Ironic looks for the agent":                                        {node: deployed("enroll"), do: hoststate.Ask, ask: "manage"},
		"Ironic does not get on":                                            {node: deployed("enroll", func(n *hoststate.Node) { n.LastError = "no" }), past: hoststate.Past{Asked: hoststate.AskedManage}, do: hoststate.Refuse, reason: metal3v1.ReasonBMCUnreachable},
		"a node gets the setting of its cleaning":                           {node: deployed("manageable", func(n *hoststate.Node) { n.Clean = nil }), do: hoststate.SetCleaning},
		"it is cleaned before its first use":                                {node: deployed("manageable"), do: hoststate.Ask, ask: "provide"},
		"while it is cleaned":                                               {node: deployed("clean wait", func(n *hoststate.Node) { n.Step = "erase_devices_metadata" }), do: hoststate.Await, reason: metal3v1.ReasonProvisioning},
		"the agent is away":                                                 {node: deployed("clean wait"), do: hoststate.Await, reason: metal3v1.ReasonAgentAway},
		"the cleaning failed":                                               {node: deployed("clean failed", func(n *hoststate.Node) { n.Maintenance = true }), do: hoststate.Refuse, reason: metal3v1.ReasonCleaningFailed},
		"it is tried again, out of maintenance":                             {node: deployed("clean failed", func(n *hoststate.Node) { n.Maintenance = true }), past: again, do: hoststate.EndMaintenance},
		"and from the start":                                                {node: deployed("clean failed"), past: again, do: hoststate.Ask, ask: "manage"},
		"another client keeps the node in maintenance":                      {node: deployed("available", func(n *hoststate.Node) { n.Maintenance = true }), do: hoststate.Refuse, reason: metal3v1.ReasonNodeRefused},
		"Ironic does so until the management controller answers":            {node: deployed("available", func(n *hoststate.Node) { n.Maintenance, n.Fault = true, "power failure" }), do: hoststate.Refuse, reason: metal3v1.ReasonBMCUnreachable},
		"it refuses the credentials":                                        {node: deployed("available", func(n *hoststate.Node) { n.Maintenance, n.Fault, n.LastError = true, "power failure", "HTTP 401" }), do: hoststate.Refuse, reason: metal3v1.ReasonBMCCredentialsRefused},
		"another operator has left the interface of custom deployments":     {node: deployed("available", func(n *hoststate.Node) { n.Deploy = "custom-agent" }), do: hoststate.Prepare},
		"a custom deployment has failed":                                    {node: deployed("deploy failed", func(n *hoststate.Node) { n.Deploy = "custom-agent" }), past: again, do: hoststate.Ask, ask: "deleted"},
		"a node that knows nothing":                                         {node: deployed("available", func(n *hoststate.Node) { n.Deployment, n.Instance = nil, "" }), do: hoststate.Prepare},
		"a node that knows of another image":                                {node: deployed("available", func(n *hoststate.Node) { n.Deployment["image_source"] = "http://images/b" }), do: hoststate.Prepare},
		"a node that knows more than it should":                             {node: deployed("available", func(n *hoststate.Node) { n.Deployment["boot_iso"] = "http://images/b" }), do: hoststate.Prepare},
		"a node whose power is the agent's":                                 {node: deployed("available", func(n *hoststate.Node) { n.PowerBy = "agent" }), do: hoststate.Enrol},
		"a node of another instance":                                        {node: deployed("available", func(n *hoststate.Node) { n.Instance = "other" }), do: hoststate.Refuse, reason: metal3v1.ReasonDeploymentFailed},
		"a node that knows all":                                             {node: deployed("available"), do: hoststate.Ask, ask: "active"},
		"while the image is written":                                        {node: deployed("wait call-back", func(n *hoststate.Node) { n.Step = "write_image" }), do: hoststate.Await, reason: metal3v1.ReasonProvisioning},
		"a machine that has to be restarted":                                {node: deployed("wait call-back", func(n *hoststate.Node) { n.Step = "deploy" }), past: again, do: hoststate.Await, reason: metal3v1.ReasonAgentAway},
		"a process that has forgotten waits, too":                           {node: deployed("deploying"), do: hoststate.Await, reason: metal3v1.ReasonProvisioning},
		"the agent has just taken its token":                                {node: deployed("wait call-back", taken), do: hoststate.Await, reason: metal3v1.ReasonAgentAway},
		"an agent that took it long ago was restarted":                      {node: deployed("wait call-back", taken), past: silent, do: hoststate.Restart},
		"so it was while the machine is cleaned":                            {node: deployed("clean wait", taken), past: silent, do: hoststate.Ask, ask: "abort"},
		"an agent that sent a heartbeat since":                              {node: deployed("wait call-back"), past: silent, do: hoststate.Await, reason: metal3v1.ReasonAgentAway},
		"Ironic works on the node":                                          {node: deployed("wait call-back", taken, func(n *hoststate.Node) { n.Locked = true }), past: silent, do: hoststate.Await, reason: metal3v1.ReasonProvisioning},
		"it failed":                                                         {node: deployed("deploy failed"), past: hoststate.Past{Asked: hoststate.AskedDeploy}, do: hoststate.Refuse, reason: metal3v1.ReasonDeploymentFailed},
		"it failed while no operator ran":                                   {node: deployed("deploy failed"), do: hoststate.Refuse, reason: metal3v1.ReasonDeploymentFailed},
		"it is tried again":                                                 {node: deployed("deploy failed"), past: again, do: hoststate.Ask, ask: "active"},
		"it is done":                                                        {node: deployed("active"), past: hoststate.Past{Asked: hoststate.AskedDeploy}, do: hoststate.Accept},
		"it was done while no operator ran":                                 {node: deployed("active"), do: hoststate.Accept},
		"something else is deployed":                                        {node: deployed("active", func(n *hoststate.Node) { n.Deployment["image_source"] = "http://images/b" }), do: hoststate.Refuse, reason: metal3v1.ReasonDeploymentFailed},
		"a deployment that did not end is ended":                            {node: deployed("error"), past: again, do: hoststate.Ask, ask: "deleted"},
		"a node that was locked a moment ago":                               {node: deployed("available", func(n *hoststate.Node) { n.Locked = true }), do: hoststate.Await, reason: metal3v1.ReasonProvisioning},
		"a machine that Ironic cannot start a deployment on":                {node: deployed("rescue"), do: hoststate.Refuse, reason: metal3v1.ReasonDeploymentFailed},
		"an adoption that failed is left behind":                            {node: deployed("adopt failed"), do: hoststate.Ask, ask: "manage"},
		"an inspection that failed is left behind":                          {node: deployed("inspect failed"), do: hoststate.Ask, ask: "manage"},
		"a refused access is told from a machine that is away":              {node: deployed("enroll", func(n *hoststate.Node) { n.LastError = "HTTP 401" }), past: hoststate.Past{Asked: hoststate.AskedManage}, do: hoststate.Refuse, reason: metal3v1.ReasonBMCCredentialsRefused},
	} {
		d, err := hoststate.DeploymentOf(deployable())
		require.NoError(t, err)
		got := hoststate.DeploymentTask(c.node, d, c.past)
		assert.Equal(t, c.do, got.Do, name)
		assert.Equal(t, c.ask, got.Ask, name)
		assert.Equal(t, c.reason, got.Reason, name)
		if c.do == hoststate.Await || c.do == hoststate.Refuse {
			assert.NotEmpty(t, got.Why, name)
		}
	}
	d, err := hoststate.DeploymentOf(deployable(func(h *metal3v1.BareMetalHost) {
		h.Spec.BMC = &metal3v1.BMCDetails{Address: "redfish://192.0.2.1", CredentialsName: "x"}
	}))
	require.NoError(t, err)
	controlled := func(n *hoststate.Node) { n.Driver, n.PowerBy = "redfish", "redfish" }
	got := hoststate.DeploymentTask(deployed("deploy failed", controlled), d, again)
	assert.Equal(t, hoststate.Task{Do: hoststate.Ask, Ask: "active"}, got, "a machine that Ironic can restart is deployed again at once")
	iso, err := hoststate.DeploymentOf(deployable(func(h *metal3v1.BareMetalHost) { h.Spec.Image.DiskFormat = new("live-iso") }))
	require.NoError(t, err)
	got = hoststate.DeploymentTask(deployed("deploy failed"), iso, again)
	assert.Equal(t, "deleted", got.Ask, "what was an image and is an ISO now needs another deploy interface, which Ironic sets after the end of the deployment")
	got = hoststate.DeploymentTask(deployed("available"), iso, hoststate.Past{})
	assert.Equal(t, hoststate.Prepare, got.Do, "and then it is set")
	manual, err := hoststate.DeploymentOf(deployable())
	require.NoError(t, err)
	got = hoststate.DeploymentTask(deployed("deploy failed", controlled), manual, again)
	assert.Equal(t, "deleted", got.Ask, "so does a machine that has lost its power control")
	hidden := deployable(func(h *metal3v1.BareMetalHost) { h.Spec.Image.URL = "http://images/a.qcow2?token=hush" })
	d, err = hoststate.DeploymentOf(hidden)
	require.NoError(t, err)
	shown := func(url string) func(*hoststate.Node) {
		return func(n *hoststate.Node) { controlled(n); n.Deployment["image_source"] = url }
	}
	d.Manual = false
	masked := shown("http://images/a.qcow2?token=******")
	got = hoststate.DeploymentTask(deployed("available", masked), d, hoststate.Past{})
	assert.Equal(t, hoststate.Prepare, got.Do, "what Ironic masks is written once")
	got = hoststate.DeploymentTask(deployed("available", masked), d, hoststate.Past{Asked: hoststate.AskedPrepare})
	assert.Equal(t, "active", got.Ask, "and then deployed")
	got = hoststate.DeploymentTask(deployed("available", shown("http://images/b.qcow2?token=******")), d, hoststate.Past{Asked: hoststate.AskedPrepare})
	assert.Equal(t, hoststate.Prepare, got.Do, "but not another image")
	got = hoststate.DeploymentTask(deployed("active", masked), d, hoststate.Past{})
	assert.Equal(t, hoststate.Accept, got.Do, "it is the one that was wanted")
	got = hoststate.DeploymentTask(deployed("active", shown("http://images/b.qcow2?token=******")), d, hoststate.Past{})
	assert.Equal(t, hoststate.Refuse, got.Do)
	d, err = hoststate.DeploymentOf(deployable(func(h *metal3v1.BareMetalHost) {
		h.Spec.Image = &metal3v1.Image{URL: "oci://images/a", OCIAuthSecretName: new("registry")}
	}))
	require.NoError(t, err)
	d.Manual = false
	pulled := func(n *hoststate.Node) {
		controlled(n)
		n.Deployment = map[string]any{"image_source": "oci://images/a"}
	}
	got = hoststate.DeploymentTask(deployed("available", pulled), d, hoststate.Past{})
	assert.Equal(t, hoststate.Prepare, got.Do, "the credentials of the registry are written before each try")
	got = hoststate.DeploymentTask(deployed("available", pulled), d, hoststate.Past{Asked: hoststate.AskedPrepare})
	assert.Equal(t, "active", got.Ask)
	d, err = hoststate.DeploymentOf(deployable())
	require.NoError(t, err)
	d.Manual = false
	got = hoststate.DeploymentTask(deployed("deploy failed", controlled, func(n *hoststate.Node) { n.Deployment["image_os_hash_value"] = "old" }), d, again)
	assert.Equal(t, hoststate.Prepare, got.Do, "with a checksum that was corrected")
}

// TestAHostThatMovedGoesOn gives a host another UID, as tools do that move it to another cluster, while its image comes or goes.
func TestAHostThatMovedGoesOn(t *testing.T) {
	again := hoststate.Past{Reported: true}
	moved := deployable(func(h *metal3v1.BareMetalHost) {
		h.Spec.BMC = &metal3v1.BMCDetails{Address: "redfish://192.0.2.1", CredentialsName: "x"}
		h.Status.Provisioning.Image = h.Spec.Image.DeepCopy()
		h.UID = "22222222-2222-4222-8222-222222222222"
	})
	former := func(n *hoststate.Node) { n.Name, n.Driver, n.PowerBy = "site~node-1", "redfish", "redfish" }
	other := func(n *hoststate.Node) { n.Name = "site~node-2" }
	image := func(n *hoststate.Node) { n.Deployment["image_source"] = "6a9cd1f2-0000-4000-8000-000000000001" }
	for name, c := range map[string]struct {
		node hoststate.Node
		past hoststate.Past
		do   hoststate.Move
		ask  string
	}{
		"its image is written":                {deployed("wait call-back", former), hoststate.Past{}, hoststate.Await, ""},
		"its image was written":               {deployed("active", former), hoststate.Past{}, hoststate.Accept, ""},
		"that failed":                         {deployed("deploy failed", former), hoststate.Past{}, hoststate.Refuse, ""},
		"and is tried again under its UID":    {deployed("deploy failed", former), again, hoststate.Vacate, ""},
		"it was about to be deployed":         {deployed("available", former), hoststate.Past{}, hoststate.Vacate, ""},
		"a deployment that did not end":       {deployed("error", former), again, hoststate.Ask, "deleted"},
		"a node with the name of another one": {deployed("available", former, other), again, hoststate.Refuse, ""},
		"a node with another image":           {deployed("deploy failed", former, image), again, hoststate.Refuse, ""},
	} {
		d, err := hoststate.DeploymentOf(moved)
		require.NoError(t, err)
		got := hoststate.DeploymentTask(c.node, d, c.past)
		assert.Equal(t, c.do, got.Do, name)
		assert.Equal(t, c.ask, got.Ask, name)
	}
	moved.Spec.Image = nil
	d := hoststate.RemovalOf(moved)
	assert.Equal(t, hoststate.Vacate, hoststate.RemovalTask(deployed("available", former), d, hoststate.Past{}).Do, "or nothing could be deployed on it any more")
	assert.Equal(t, hoststate.Accept, hoststate.RemovalTask(deployed("available", former, image), d, hoststate.Past{}).Do, "another client's")
	assert.Equal(t, hoststate.Vacate, hoststate.AdoptionTask(deployed(hoststate.AdoptFailed, former), d, again).Do)
}

// TestALiveISOLosesTheConfigDriveOfAnEarlierTry has Ironic keep the config drive of a deployment that failed.
func TestALiveISOLosesTheConfigDriveOfAnEarlierTry(t *testing.T) {
	d, err := hoststate.DeploymentOf(deployable(func(h *metal3v1.BareMetalHost) {
		h.Spec.BMC = &metal3v1.BMCDetails{Address: "redfish://192.0.2.1", CredentialsName: "x"}
		h.Spec.Image = &metal3v1.Image{URL: "http://images/a.iso", DiskFormat: new("live-iso")}
	}))
	require.NoError(t, err)
	failed := func(drive bool) hoststate.Node {
		return deployed("deploy failed", func(n *hoststate.Node) {
			n.Driver, n.PowerBy, n.Deploy = "redfish", "redfish", hoststate.RamdiskDeploy
			if n.Deployment = maps.Clone(d.Info); drive {
				n.Deployment["configdrive"] = "******"
			}
		})
	}
	assert.Equal(t, hoststate.Prepare, hoststate.DeploymentTask(failed(true), d, hoststate.Past{Reported: true}).Do)
	assert.Equal(t, "active", hoststate.DeploymentTask(failed(false), d, hoststate.Past{Reported: true}).Ask)
}

func TestTheEndOfADeploymentStepByStep(t *testing.T) {
	again := hoststate.Past{Reported: true}
	maintained := func(n *hoststate.Node) { n.Maintenance = true }
	controlled := func(n *hoststate.Node) { n.Driver, n.PowerBy = "redfish", "redfish" }
	vacant := func(n *hoststate.Node) { n.Instance, n.Deployment = "", nil }
	for name, c := range map[string]struct {
		node   hoststate.Node
		past   hoststate.Past
		do     hoststate.Move
		ask    string
		reason string
	}{
		"the deployment ends":                                {node: deployed("active"), do: hoststate.Ask, ask: "deleted"},
		"one with a management controller ends at once":      {node: deployed("active", controlled), do: hoststate.Ask, ask: "deleted"},
		"a node gets the setting of its cleaning":            {node: deployed("active", controlled, func(n *hoststate.Node) { n.Clean = new(false) }), do: hoststate.SetCleaning},
		"one that is being serviced":                         {node: deployed("service wait", controlled), do: hoststate.Ask, ask: "deleted"},
		"one whose servicing failed":                         {node: deployed("service failed", controlled, maintained), do: hoststate.Ask, ask: "deleted"},
		"one that is to be rescued":                          {node: deployed("rescue wait", controlled), do: hoststate.Ask, ask: "deleted"},
		"an adoption that failed is left behind":             {node: deployed("adopt failed", vacant), do: hoststate.Ask, ask: "manage"},
		"and the machine given back":                         {node: deployed("manageable", vacant), past: hoststate.Past{Asked: hoststate.AskedManage}, do: hoststate.Accept},
		"a deployment that is under way ends, too":           {node: deployed("wait call-back", controlled), do: hoststate.Ask, ask: "deleted"},
		"one that writes is waited for":                      {node: deployed("deploying", controlled), do: hoststate.Await, reason: metal3v1.ReasonDeprovisioning},
		"while the machine is cleaned":                       {node: deployed("cleaning", vacant), do: hoststate.Await, reason: metal3v1.ReasonDeprovisioning},
		"while the user has to restart the machine":          {node: deployed("clean wait", vacant), do: hoststate.Await, reason: metal3v1.ReasonAgentAway},
		"an agent that took its token was restarted":         {node: deployed("clean wait", vacant, func(n *hoststate.Node) { n.TokenTaken = true }), past: hoststate.Past{Silent: true}, do: hoststate.Ask, ask: "abort"},
		"it was not ended":                                   {node: deployed("error"), past: hoststate.Past{Asked: hoststate.AskedUndeploy}, do: hoststate.Refuse, reason: metal3v1.ReasonUndeployFailed},
		"it is tried again":                                  {node: deployed("error"), past: again, do: hoststate.Ask, ask: "deleted"},
		"the machine was not cleaned":                        {node: deployed("clean failed", maintained, vacant), do: hoststate.Refuse, reason: metal3v1.ReasonCleaningFailed},
		"nor when that was tried again":                      {node: deployed("clean failed", maintained, vacant), past: hoststate.Past{Asked: hoststate.AskedProvide, Reported: true}, do: hoststate.Refuse, reason: metal3v1.ReasonCleaningFailed},
		"a silent ramdisk is its user's where the power is":  {node: deployed("clean wait", vacant), past: hoststate.Past{Late: true}, do: hoststate.Await, reason: metal3v1.ReasonAgentAway},
		"cleaning is tried again, out of maintenance":        {node: deployed("clean failed", maintained, vacant), past: again, do: hoststate.EndMaintenance},
		"from the start":                                     {node: deployed("clean failed", vacant), past: again, do: hoststate.Ask, ask: "manage"},
		"and to its end":                                     {node: deployed("manageable", vacant), past: again, do: hoststate.Ask, ask: "provide"},
		"the node is clean":                                  {node: deployed("available", vacant), do: hoststate.Accept},
		"a deployment that never began is taken from a node": {node: deployed("available"), do: hoststate.Vacate},
		"a node that was never deployed on":                  {node: deployed("enroll", vacant), do: hoststate.Accept},
	} {
		got := hoststate.RemovalTask(c.node, hoststate.RemovalOf(deployable()), c.past)
		assert.Equal(t, c.do, got.Do, name)
		assert.Equal(t, c.ask, got.Ask, name)
		assert.Equal(t, c.reason, got.Reason, name)
	}
	used := hoststate.RemovalOf(deployable(func(h *metal3v1.BareMetalHost) {
		h.Spec.BMC = &metal3v1.BMCDetails{Address: "redfish://192.0.2.1", CredentialsName: "x"}
		h.Status.OperationHistory.Provision.End = &metav1.Time{Time: now}
	}))
	for name, c := range map[string]struct {
		node hoststate.Node
		past hoststate.Past
		want hoststate.Task
	}{
		"a used machine whose node was made anew is managed": {deployed("enroll", controlled, vacant), hoststate.Past{}, hoststate.Task{Do: hoststate.Ask, Ask: "manage"}},
		"its management controller is away": {
			deployed("enroll", controlled, vacant), hoststate.Past{Asked: hoststate.AskedManage},
			hoststate.Task{Do: hoststate.Refuse, Reason: metal3v1.ReasonBMCUnreachable, Why: "Ironic does not say why."},
		},
		"it gets the setting of its cleaning":           {deployed("manageable", controlled, vacant, func(n *hoststate.Node) { n.Clean = nil }), hoststate.Past{}, hoststate.Task{Do: hoststate.SetCleaning}},
		"it is cleaned":                                 {deployed("manageable", controlled, vacant), hoststate.Past{}, hoststate.Task{Do: hoststate.Ask, Ask: "provide"}},
		"what was prepared for an adoption goes":        {deployed("manageable", controlled), hoststate.Past{}, hoststate.Task{Do: hoststate.Vacate}},
		"so does an adoption that failed":               {deployed("adopt failed", controlled, vacant), hoststate.Past{}, hoststate.Task{Do: hoststate.Ask, Ask: "manage"}},
		"the machine of a node that knew of it is, too": {deployed("available", controlled, vacant), hoststate.Past{}, hoststate.Task{Do: hoststate.Accept}},
	} {
		assert.Equal(t, c.want, hoststate.RemovalTask(c.node, used, c.past), name)
	}
	unclean := hoststate.RemovalOf(deployable(func(h *metal3v1.BareMetalHost) { h.Spec.AutomatedCleaningMode = "disabled" }))
	got := hoststate.RemovalTask(deployed("manageable", controlled, vacant), unclean, again)
	assert.Equal(t, hoststate.SetCleaning, got.Do, "a cleaning that failed is not tried again once its user has switched it off")
	got = hoststate.RemovalTask(deployed("manageable", controlled, vacant, func(n *hoststate.Node) { n.Clean = new(false) }), unclean, again)
	assert.Equal(t, hoststate.Accept, got.Do)
	used.Clean = false
	assert.Equal(t, hoststate.Accept, hoststate.RemovalTask(deployed("manageable", controlled, vacant), used, hoststate.Past{}).Do, "not where its user does not want that")
	locked := func(n *hoststate.Node) { n.Locked = true }
	d := hoststate.RemovalOf(deployable(func(h *metal3v1.BareMetalHost) {
		h.Spec.BMC = &metal3v1.BMCDetails{Address: "redfish://192.0.2.1", CredentialsName: "x"}
	}))
	got = hoststate.RemovalTask(deployed("clean wait", controlled, vacant), d, hoststate.Past{Late: true})
	assert.Equal(t, "abort", got.Ask, "a ramdisk that is silent is given up")
	got = hoststate.RemovalTask(deployed("clean wait", controlled, vacant, locked), d, hoststate.Past{Late: true})
	assert.Equal(t, hoststate.Await, got.Do, "but not while Ironic hears it")
}

func TestAnImageIsDeployedAndTakenAway(t *testing.T) {
	h := deployable()
	assert.Equal(t, hoststate.DeploymentWanted, hoststate.EventOf(hoststate.Available, hoststate.FactsOf(h)))
	assert.Equal(t, hoststate.Nothing, hoststate.EventOf(hoststate.Provisioned, hoststate.FactsOf(h)))
	h.Status.Provisioning.Image = h.Spec.Image.DeepCopy()
	h.Spec.Image.Checksum = strings.Repeat("f00d", 16)
	assert.Equal(t, hoststate.Nothing, hoststate.EventOf(hoststate.Provisioned, hoststate.FactsOf(h)), "a checksum takes nothing from a machine")
	h.Spec.Image.URL = "http://images/b.qcow2"
	for _, s := range []hoststate.State{hoststate.Provisioning, hoststate.Provisioned} {
		assert.Equal(t, hoststate.DeploymentRevoked, hoststate.EventOf(s, hoststate.FactsOf(h)))
	}
	h.Spec.Online = false
	assert.Equal(t, hoststate.Nothing, hoststate.EventOf(hoststate.Available, hoststate.FactsOf(h)), "a machine that shall be off is not used")
	step, _ := hoststate.Next(hoststate.Provisioned, hoststate.NodeLost)
	assert.Equal(t, hoststate.Provisioned, step.To, "a machine in use is never deployed again")
}

func TestAnAdoptionStepByStep(t *testing.T) {
	d, err := hoststate.DeploymentOf(deployable())
	require.NoError(t, err)
	for name, c := range map[string]struct {
		node hoststate.Node
		past hoststate.Past
		want hoststate.Task
	}{
		"a node that was made anew gets its instance_info": {hoststate.Node{State: "manageable"}, hoststate.Past{}, hoststate.Task{Do: hoststate.Prepare}},
		"it adopts the machine":                            {deployed("manageable"), hoststate.Past{}, hoststate.Task{Do: hoststate.Ask, Ask: hoststate.AskAdopt}},
		"that is waited for": {deployed(hoststate.Adopting), hoststate.Past{Asked: hoststate.AskedAdopt}, hoststate.Task{
			Do: hoststate.Await, Reason: metal3v1.ReasonAdopting, Why: "Ironic adopts the machine as it is.",
		}},
		"a failure is reported": {
			deployed(hoststate.AdoptFailed, func(n *hoststate.Node) { n.LastError = "no image" }), hoststate.Past{Asked: hoststate.AskedAdopt}, hoststate.Task{
				Do: hoststate.Refuse, Reason: metal3v1.ReasonAdoptionFailed, Why: "Ironic did not adopt the machine, which stays as it is: no image.",
			},
		},
		"and tried again": {deployed(hoststate.AdoptFailed), hoststate.Past{Reported: true}, hoststate.Task{Do: hoststate.Ask, Ask: hoststate.AskAdopt}},
		"a node of another instance is left alone": {
			deployed("manageable", func(n *hoststate.Node) { n.Instance = "other" }), hoststate.Past{}, hoststate.Task{
				Do: hoststate.Refuse, Reason: metal3v1.ReasonAdoptionFailed,
				Why: "Ironic did not adopt the machine, which stays as it is: the node is occupied by instance other, which is not this host's.",
			},
		},
		"a node that is deployed needs none":                           {deployed(hoststate.Active), hoststate.Past{}, hoststate.Task{Do: hoststate.Accept}},
		"nor one that Ironic works on":                                 {deployed("manageable", func(n *hoststate.Node) { n.Locked = true }), hoststate.Past{}, hoststate.Task{Do: hoststate.Accept}},
		"one whose credentials were not verified yet is managed first": {hoststate.Node{State: "enroll"}, hoststate.Past{}, hoststate.Task{Do: hoststate.Ask, Ask: hoststate.AskManage}},
		"a management controller that does not answer is reported": {
			hoststate.Node{State: "enroll", LastError: "no answer"}, hoststate.Past{Asked: hoststate.AskedManage}, hoststate.Task{
				Do: hoststate.Refuse, Reason: metal3v1.ReasonBMCUnreachable, Why: "no answer.",
			},
		},
		"an available node is never deployed": {deployed("available"), hoststate.Past{}, hoststate.Task{Do: hoststate.Accept}},
	} {
		assert.Equal(t, c.want, hoststate.AdoptionTask(c.node, d, c.past), name)
	}
}

func TestWhatANodeSaysOfItsMachine(t *testing.T) {
	for name, c := range map[string]struct {
		mode string
		cpu  string
		has  map[string]any
		want map[string]string
	}{
		"a node that says nothing":                    {"legacy", "aarch64", nil, map[string]string{"capabilities": "boot_mode:bios", "cpu_arch": "aarch64"}},
		"secure boot":                                 {"UEFISecureBoot", "", nil, map[string]string{"capabilities": "boot_mode:uefi,secure_boot:true"}},
		"other capabilities are kept":                 {"UEFI", "x86_64", map[string]any{"capabilities": "cpu_vt:true,boot_mode:bios,secure_boot:true", "cpu_arch": "x86_64"}, map[string]string{"capabilities": "cpu_vt:true,boot_mode:uefi"}},
		"a node that says so is left":                 {"UEFI", "x86_64", map[string]any{"capabilities": "cpu_vt:true,boot_mode:uefi", "cpu_arch": "x86_64"}, map[string]string{}},
		"what the host does not say is left as it is": {"", "", map[string]any{"capabilities": "boot_mode:bios", "cpu_arch": "aarch64"}, map[string]string{}},
	} {
		h := deployable()
		h.Spec.BootMode, h.Spec.Architecture = c.mode, c.cpu
		assert.Equal(t, c.want, hoststate.MachineOf(h).Properties(hoststate.Node{Properties: c.has}), name)
	}
}
