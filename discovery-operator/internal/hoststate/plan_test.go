// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package hoststate_test

import (
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	metal3v1 "github.com/muster-io/muster/apis/metal3/v1alpha1"
	"github.com/muster-io/muster/discovery-operator/internal/hoststate"
)

func TestAccessTo(t *testing.T) {
	for address, want := range map[string]hoststate.Access{
		"redfish://192.0.2.1/redfish/v1/Systems/1": {Driver: "redfish", Info: map[string]string{
			"redfish_address": "https://192.0.2.1", "redfish_system_id": "/redfish/v1/Systems/1", "redfish_username": "u", "redfish_verify_ca": "True",
		}},
		"redfish-virtualmedia+http://h:8000/redfish/v1/Systems/1/": {Driver: "redfish", Info: map[string]string{
			"redfish_address": "http://h:8000", "redfish_system_id": "/redfish/v1/Systems/1", "redfish_username": "u", "redfish_verify_ca": "True",
		}},
		"idrac-virtualmedia://h": {Driver: "idrac", Info: map[string]string{"redfish_address": "https://h", "redfish_username": "u", "redfish_verify_ca": "True"}},
		"192.0.2.1":              {Driver: "ipmi", Info: map[string]string{"ipmi_address": "192.0.2.1", "ipmi_username": "u"}},
		"ipmi://192.0.2.1:6230":  {Driver: "ipmi", Info: map[string]string{"ipmi_address": "192.0.2.1", "ipmi_port": "6230", "ipmi_username": "u"}},
		"ipmi:192.0.2.1:6230":    {Driver: "ipmi", Info: map[string]string{"ipmi_address": "192.0.2.1", "ipmi_port": "6230", "ipmi_username": "u"}},
		"ipmi:bmc.example.com":   {Driver: "ipmi", Info: map[string]string{"ipmi_address": "bmc.example.com", "ipmi_username": "u"}},
		"bmc.example.com:6230":   {Driver: "ipmi", Info: map[string]string{"ipmi_address": "bmc.example.com", "ipmi_port": "6230", "ipmi_username": "u"}},
		"192.0.2.1:6230":         {Driver: "ipmi", Info: map[string]string{"ipmi_address": "192.0.2.1", "ipmi_port": "6230", "ipmi_username": "u"}},
		"[2001:db8::1]:6230":     {Driver: "ipmi", Info: map[string]string{"ipmi_address": "2001:db8::1", "ipmi_port": "6230", "ipmi_username": "u"}},
		"ipmi:[2001:db8::1]:623": {Driver: "ipmi", Info: map[string]string{"ipmi_address": "2001:db8::1", "ipmi_port": "623", "ipmi_username": "u"}},
		"2001:db8::1":            {Driver: "ipmi", Info: map[string]string{"ipmi_address": "2001:db8::1", "ipmi_username": "u"}},
		"redfish+http:h:8000/redfish/v1/Systems/1": {Driver: "redfish", Info: map[string]string{
			"redfish_address": "http://h:8000", "redfish_system_id": "/redfish/v1/Systems/1", "redfish_username": "u", "redfish_verify_ca": "True",
		}},
		"ipmi://192.0.2.1?privilegelevel=OPERATOR": {Driver: "ipmi", Info: map[string]string{
			"ipmi_address": "192.0.2.1", "ipmi_username": "u", "ipmi_priv_level": "OPERATOR",
		}},
		"redfish://h/redfish/v1/": {Driver: "redfish", Info: map[string]string{"redfish_address": "https://h", "redfish_username": "u", "redfish_verify_ca": "True"}},
		"libvirt://[2001:db8::1]": {Driver: "ipmi", Info: map[string]string{"ipmi_address": "2001:db8::1", "ipmi_username": "u"}},
	} {
		a, err := hoststate.AccessTo(metal3v1.BMCDetails{Address: address}, "u", "p")
		require.NoError(t, err, address)
		assert.Equal(t, want.Driver, a.Driver, address)
		assert.Equal(t, want.Info, a.Info, address)
		assert.Equal(t, "p", a.Password)
		node := hoststate.Node{Driver: a.Driver, Info: map[string]string{"kept": "x"}}
		assert.False(t, a.Matches(node), "a node with half of it is completed")
		maps.Copy(node.Info, a.Info)
		assert.True(t, a.Matches(node))
		for _, key := range []string{"ipmi_port", "redfish_system_id"} {
			other := hoststate.Node{Driver: a.Driver, Info: maps.Clone(node.Info)}
			other.Info[key] = "another"
			foreign := !strings.HasPrefix(key, strings.TrimSuffix(a.PasswordKey, "password"))
			assert.Equal(t, foreign, a.Matches(other), "%s of another address on the node of %s", key, address)
		}
		node.Driver = "fake-hardware"
		assert.False(t, a.Matches(node))
	}
	for _, address := range []string{"pigeon://h", "pigeon:h", "redfish://", "redfish:// /"} {
		_, err := hoststate.AccessTo(metal3v1.BMCDetails{Address: address}, "u", "p")
		require.Error(t, err, address)
	}
	a, err := hoststate.AccessTo(metal3v1.BMCDetails{Address: "redfish://h", DisableCertificateVerification: true}, "u", "p")
	require.NoError(t, err)
	assert.Equal(t, "False", a.Info["redfish_verify_ca"])
}

// TestANodeOfAnotherOperatorIsNotRegisteredAnew has baremetal-operator, which writes the usual port of IPMI into each node.
func TestANodeOfAnotherOperatorIsNotRegisteredAnew(t *testing.T) {
	a, err := hoststate.AccessTo(metal3v1.BMCDetails{Address: "ipmi://192.0.2.1"}, "u", "p")
	require.NoError(t, err)
	n := hoststate.Node{Driver: "ipmi", Info: map[string]string{"ipmi_address": "192.0.2.1", "ipmi_username": "u", "ipmi_port": "623", "ipmi_priv_level": "ADMINISTRATOR"}}
	assert.True(t, a.Matches(n))
	n.Info["ipmi_port"] = "6230"
	assert.False(t, a.Matches(n))
}

// TestWhoseCertificatesAreVerified has an administrator of Ironic name the authorities of a management controller, and another operator leave out what is Ironic's default.
func TestWhoseCertificatesAreVerified(t *testing.T) {
	for value, verified := range map[string]bool{
		"": true, "True": true, "true": true, "/certs/bmc.pem": true, "False": false, "false": false, "0": false, "no": false,
	} {
		for _, disabled := range []bool{false, true} {
			a, err := hoststate.AccessTo(metal3v1.BMCDetails{Address: "redfish://h", DisableCertificateVerification: disabled}, "u", "p")
			require.NoError(t, err)
			n := hoststate.Node{Driver: a.Driver, Info: maps.Clone(a.Info)}
			n.Info["redfish_verify_ca"] = value
			if value == "" {
				delete(n.Info, "redfish_verify_ca")
			}
			assert.Equal(t, disabled != verified, a.Matches(n), "%q, disabled: %t", value, disabled)
			if disabled == verified {
				assert.Equal(t, map[string]string{"redfish_verify_ca": a.Info["redfish_verify_ca"]}, a.Lacking(n))
			}
		}
	}
}

func TestRegistration(t *testing.T) {
	for name, c := range map[string]struct {
		node  hoststate.Node
		asked hoststate.Asked
		want  hoststate.Move
	}{
		"a node without credentials":              {hoststate.Node{State: "enroll"}, hoststate.AskedNothing, hoststate.Write},
		"a new node is verified":                  {hoststate.Node{State: "enroll"}, hoststate.AskedWrite, hoststate.Manage},
		"a node that is managed already":          {hoststate.Node{State: "manageable"}, hoststate.AskedWrite, hoststate.CheckPower},
		"Ironic is at it":                         {hoststate.Node{State: "verifying"}, hoststate.AskedManage, hoststate.Await},
		"Ironic has locked the node":              {hoststate.Node{State: "enroll", Locked: true}, hoststate.AskedNothing, hoststate.Await},
		"the controller refused":                  {hoststate.Node{State: "enroll", LastError: "401"}, hoststate.AskedManage, hoststate.Refuse},
		"the controller accepted":                 {hoststate.Node{State: "manageable"}, hoststate.AskedManage, hoststate.Accept},
		"the controller accepted, an old error":   {hoststate.Node{State: "manageable", LastError: "old"}, hoststate.AskedManage, hoststate.Accept},
		"the power is asked for":                  {hoststate.Node{State: "available", PowerTarget: "power on"}, hoststate.AskedPower, hoststate.Await},
		"the controller does not tell the power":  {hoststate.Node{State: "available", LastError: "401"}, hoststate.AskedPower, hoststate.Refuse},
		"the controller tells the power":          {hoststate.Node{State: "available"}, hoststate.AskedPower, hoststate.Accept},
		"a process that has forgotten asks again": {hoststate.Node{State: "enroll", LastError: "401"}, hoststate.AskedNothing, hoststate.Write},
	} {
		assert.Equal(t, c.want, hoststate.Registration(c.node, c.asked), name)
	}
}

func TestPower(t *testing.T) {
	on, off := hoststate.Node{Power: hoststate.PowerOn}, hoststate.Node{Power: hoststate.PowerDown}
	failed := func(n hoststate.Node) hoststate.Node { n.LastError = "no"; return n }
	once := hoststate.DesiredPower{On: true, Reboots: []string{"reboot.metal3.io"}, Once: true}
	hard, kept := once, once
	hard.Hard, kept.KeepOn = true, true
	keyed := hoststate.DesiredPower{On: true, Reboots: []string{"reboot.metal3.io/me"}}
	for name, c := range map[string]struct {
		node    hoststate.Node
		desired hoststate.DesiredPower
		asked   string
		want    hoststate.PowerStep
	}{
		"on and wanted on":                         {on, hoststate.DesiredPower{On: true}, "", hoststate.PowerStep{}},
		"off and wanted off":                       {off, hoststate.DesiredPower{}, "", hoststate.PowerStep{}},
		"off and wanted on":                        {off, hoststate.DesiredPower{On: true}, "", hoststate.PowerStep{Ask: hoststate.PowerOn}},
		"unknown, wanted off":                      {hoststate.Node{}, hoststate.DesiredPower{}, "", hoststate.PowerStep{Ask: hoststate.SoftDown}},
		"Ironic is at it":                          {hoststate.Node{Power: hoststate.PowerDown, PowerTarget: "power on"}, hoststate.DesiredPower{On: true}, hoststate.PowerOn, hoststate.PowerStep{Wait: true}},
		"on and wanted off":                        {on, hoststate.DesiredPower{}, "", hoststate.PowerStep{Ask: hoststate.SoftDown}},
		"a system that does not listen":            {failed(on), hoststate.DesiredPower{}, hoststate.SoftDown, hoststate.PowerStep{Ask: hoststate.PowerDown}},
		"a controller that does not switch off":    {failed(on), hoststate.DesiredPower{}, hoststate.PowerDown, hoststate.PowerStep{Failed: true}},
		"a controller that does not switch on":     {failed(off), hoststate.DesiredPower{On: true}, hoststate.PowerOn, hoststate.PowerStep{Failed: true}},
		"an old error is not this one's":           {failed(off), hoststate.DesiredPower{On: true}, "", hoststate.PowerStep{Ask: hoststate.PowerOn}},
		"a reboot begins":                          {on, once, "", hoststate.PowerStep{Ask: hoststate.SoftDown}},
		"a hard reboot begins":                     {on, hard, "", hoststate.PowerStep{Ask: hoststate.PowerDown}},
		"a reboot is half done":                    {off, once, "", hoststate.PowerStep{Rebooted: true}},
		"a reboot of a machine that is never off":  {on, kept, "", hoststate.PowerStep{Ask: hoststate.SoftRestart, Rebooted: true}},
		"off for as long as an annotation says so": {off, keyed, "", hoststate.PowerStep{}},
		"never off":                                {on, hoststate.DesiredPower{KeepOn: true}, "", hoststate.PowerStep{}},
		"never off, but it is":                     {off, hoststate.DesiredPower{On: true, KeepOn: true}, "", hoststate.PowerStep{Ask: hoststate.PowerOn}},
	} {
		assert.Equal(t, c.want, hoststate.Power(c.node, c.desired, c.asked), name)
	}
	h := &metal3v1.BareMetalHost{}
	h.Spec.Online = true
	h.Annotations = map[string]string{"reboot.metal3.io": "", "reboot.metal3.io/x": `{"mode":"hard"}`, "reboot.metal3.io.example": "", "other": ""}
	assert.Equal(t, hoststate.DesiredPower{On: true, Once: true, Hard: true, Reboots: []string{"reboot.metal3.io", "reboot.metal3.io/x"}}, hoststate.DesiredPowerOf(h))
}

func TestInspection(t *testing.T) {
	began := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	idle := hoststate.Node{State: "manageable"}
	before, after := idle, idle
	before.Inspected, after.Inspected = began.Add(-time.Hour), began.Add(time.Minute)
	broken := hoststate.Node{State: hoststate.InspectFailed, LastError: "timeout"}
	for name, c := range map[string]struct {
		node hoststate.Node
		e    hoststate.Examination
		want hoststate.Move
	}{
		"an earlier inspection suffices":         {idle, hoststate.Examination{Since: began}, hoststate.Accept},
		"Ironic prepares it":                     {hoststate.Node{State: hoststate.Inspects}, hoststate.Examination{}, hoststate.Await},
		"the ramdisk boots":                      {hoststate.Node{State: hoststate.InspectWait}, hoststate.Examination{}, hoststate.Await},
		"an earlier inspection does not suffice": {before, hoststate.Examination{Again: true, Since: began}, hoststate.Inspect},
		"nor what was discovered":                {idle, hoststate.Examination{Again: true, Since: began}, hoststate.Inspect},
		"it ended while no operator ran":         {after, hoststate.Examination{Again: true, Since: began}, hoststate.Accept},
		"it ended, and Ironic's clock is late":   {before, hoststate.Examination{Again: true, Since: began, Asked: hoststate.AskedInspect}, hoststate.Accept},
		"ironic-inspector has not begun it": {before, hoststate.Examination{
			Again: true, Since: began, Asked: hoststate.AskedInspect, Before: before.Inspected,
		}, hoststate.Await},
		"ironic-inspector has ended it": {after, hoststate.Examination{
			Again: true, Since: began, Asked: hoststate.AskedInspect, Before: before.Inspected,
		}, hoststate.Accept},
		"another client ended it":                          {idle, hoststate.Examination{Again: true, Since: began, Asked: hoststate.AskedInspect}, hoststate.Refuse},
		"it failed":                                        {broken, hoststate.Examination{Asked: hoststate.AskedInspect}, hoststate.Refuse},
		"it failed while no operator ran":                  {broken, hoststate.Examination{}, hoststate.Refuse},
		"it failed, was reported, and is due to be tried":  {broken, hoststate.Examination{Reported: true}, hoststate.Inspect},
		"it failed once more, and the host said so before": {broken, hoststate.Examination{Reported: true, Asked: hoststate.AskedInspect}, hoststate.Refuse},
	} {
		assert.Equal(t, c.want, hoststate.Inspection(c.node, c.e), name)
	}
}

func TestRefusal(t *testing.T) {
	assert.True(t, hoststate.Refusal("HTTP GET http://x returned code 401. unknown error"))
	assert.False(t, hoststate.Refusal("Unable to connect to http://192.0.2.1:40123: connection refused"), "a port is no answer")
	assert.False(t, hoststate.Refusal("Unable to connect to http://x: connection refused"))
}
