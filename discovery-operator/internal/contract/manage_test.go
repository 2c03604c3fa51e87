// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package contract

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	metal3v1 "github.com/muster-io/muster/apis/metal3/v1alpha1"
	"github.com/muster-io/muster/discovery-operator/internal/controller/baremetalhost"
	"github.com/muster-io/muster/discovery-operator/internal/demo"
	"github.com/muster-io/muster/discovery-operator/internal/hoststate"
	"github.com/muster-io/muster/discovery-operator/internal/hoststate/osimage"
	"github.com/muster-io/muster/discovery-operator/internal/inventory"
	"github.com/muster-io/muster/discovery-operator/internal/ironic"
	"github.com/muster-io/muster/discovery-operator/internal/ironictest"
	"github.com/muster-io/muster/discovery-operator/internal/redfishmock"
)

// rack is an Ironic under test that manages machines.
type rack struct {
	baremetalhost.Manager
	// enrol makes machine number i report, and returns the node.
	enrol func(t *testing.T, i int) string
	// bmc is the address of a management controller that takes the user admin with the password right.
	bmc string
	// power is what the machine behind the management controller really does.
	power func(uuid string) bool
	// boots makes machine number i, which an inspection has switched on, boot the ramdisk and report.
	boots func(t *testing.T, i int)
	// forgets says that Ironic can end an inspection too early, with the end of the one before: until ironic-inspector has begun it, it answers
	// with that, and Ironic may ask in between.
	forgets bool
}

func TestManagingOnDemo(t *testing.T) {
	r := demo.New()
	managing(t, rack{
		Manager: r, bmc: "redfish://192.0.2.1/redfish/v1/Systems/1",
		enrol: func(t *testing.T, i int) string {
			uuid, err := r.Enrol(demo.Machine(i))
			require.NoError(t, err)
			return uuid
		},
		power: func(uuid string) bool { return r.Power(uuid) == hoststate.PowerOn },
		boots: func(*testing.T, int) {}, // machines of the rack boot when Ironic looks for them
	})
}

func TestManagingOnIronic(t *testing.T) {
	real := ironictest.Start(t, "managing", "IRONIC_DRIVERS=fake-hardware,ipmi,redfish")
	client := real.Client(t)
	bmc := redfishmock.Start(t, "admin", "right")
	managing(t, rack{
		Manager: client, bmc: bmc.Address(),
		enrol: func(t *testing.T, i int) string { return real.Enrol(t, 1, i)[0] },
		power: func(string) bool { return bmc.Power() == "On" },
		boots: func(t *testing.T, i int) { real.Ramdisk(t, demo.Machine(i)) },

		forgets: real.Inspector != "",
	})
	t.Run("a node gets its ramdisk before an inspection", func(t *testing.T) {
		config := real.Config()
		config.Ramdisk = ironic.Ramdisk{Kernel: "http://127.0.0.1:9/kernel", Initramfs: "http://127.0.0.1:9/initramfs"}
		knows, err := ironic.New(config, nil)
		require.NoError(t, err)
		uuid := real.Enrol(t, 1, 5)[0]
		n, err := knows.Managed(t.Context(), uuid)
		require.NoError(t, err)
		refuses(t, func() error { return knows.Inspect(t.Context(), n, metal3v1.InspectionAgent, hoststate.Machine{}) }) // it is not managed
		n, err = knows.Managed(t.Context(), uuid)
		require.NoError(t, err)
		assert.Equal(t, config.Ramdisk.Kernel, n.Info["deploy_kernel"])
		assert.Equal(t, config.Ramdisk.Initramfs, n.Info["deploy_ramdisk"])
	})
}

func (r rack) access(t *testing.T, password string) hoststate.Access {
	t.Helper()
	a, err := hoststate.AccessTo(metal3v1.BMCDetails{Address: r.bmc}, "admin", password)
	require.NoError(t, err)
	return a
}

// until waits for a node to be as the test wants it.
func (r rack) until(ctx context.Context, t *testing.T, uuid string, as func(hoststate.Node) bool) hoststate.Node {
	t.Helper()
	var n hoststate.Node
	var err error
	require.Eventually(t, func() bool {
		n, err = r.Examined(ctx, uuid)
		return err != nil || as(n)
	}, 3*time.Minute, ironictest.Beat)
	require.NoError(t, err)
	return n
}

// settled waits until Ironic has done what it was asked for.
func (r rack) settled(ctx context.Context, t *testing.T, uuid string) hoststate.Node {
	t.Helper()
	return r.until(ctx, t, uuid, func(n hoststate.Node) bool { return !n.Busy() })
}

// awaitsRamdisk has a machine inspected, and waits until Ironic waits for its ramdisk.
func (r rack) awaitsRamdisk(ctx context.Context, t *testing.T, uuid string) hoststate.Node {
	t.Helper()
	n := r.settled(ctx, t, uuid)
	ask(t, func() error { return r.Inspect(ctx, n, metal3v1.InspectionAgent, hoststate.Machine{}) })
	return r.until(ctx, t, uuid, func(n hoststate.Node) bool {
		return n.State == hoststate.InspectWait && !n.Locked && n.Reported.IsZero()
	})
}

// ask repeats what Ironic does not look at because it works on the node, until it takes it.
func ask(t *testing.T, what func() error) {
	t.Helper()
	require.NoError(t, answer(t, what))
}

// refuses repeats what Ironic does not look at because it works on the node, until it refuses it.
func refuses(t *testing.T, what func() error) {
	t.Helper()
	require.ErrorIs(t, answer(t, what), inventory.ErrRefused)
}

func answer(t *testing.T, what func() error) error {
	t.Helper()
	var err error
	require.Eventually(t, func() bool {
		err = what()
		return !errors.Is(err, inventory.ErrBusy)
	}, 3*time.Minute, ironictest.Beat)
	return err
}

// inspects has the machine of a node inspected, twice, where the second one cannot end too early.
func inspects(ctx context.Context, t *testing.T, r rack, uuid string) {
	t.Helper()
	t.Run("a machine is switched on and inspected by its ramdisk", func(t *testing.T) {
		before := r.settled(ctx, t, uuid)
		require.True(t, before.Inspected.IsZero(), "a discovery is no inspection")
		began := r.awaitsRamdisk(ctx, t, uuid)
		assert.True(t, began.Inspected.IsZero())
		assert.Equal(t, hoststate.Await, hoststate.Inspection(began, hoststate.Examination{}))
		require.Eventually(t, func() bool { return r.power(uuid) }, 3*time.Minute, ironictest.Beat, "Ironic switches the machine on")
		r.boots(t, 1)
		asked := hoststate.Examination{Again: true, Asked: hoststate.AskedInspect, Before: before.Reported}
		n := r.until(ctx, t, uuid, func(n hoststate.Node) bool { return hoststate.Inspection(n, asked) != hoststate.Await })
		assert.Equal(t, hoststate.Accept, hoststate.Inspection(n, asked))
		assert.Equal(t, inventory.NodeManageable, n.State, n.LastError)
		assert.False(t, n.Inspected.IsZero())
		report, err := r.Report(ctx, uuid)
		require.NoError(t, err)
		assert.Equal(t, demo.MAC(1, 0), report.BootMAC)
	})
	if r.forgets {
		return
	}
	t.Run("an inspection is ended before its node is deleted", func(t *testing.T) {
		n := r.awaitsRamdisk(ctx, t, uuid)
		require.ErrorIs(t, r.DeleteNode(ctx, uuid), inventory.ErrBusy)
		for range 2 {
			what, wait := hoststate.Leave(n)
			require.True(t, wait)
			ask(t, func() error { return r.SetProvision(ctx, uuid, what) })
			n = r.settled(ctx, t, uuid)
		}
		_, wait := hoststate.Leave(n)
		assert.False(t, wait)
		assert.Equal(t, inventory.NodeManageable, n.State, n.LastError)
		_, err := r.Report(ctx, uuid)
		require.NoError(t, err, "the inventory of the machine stays")
		ask(t, func() error { return r.SetPower(ctx, uuid, hoststate.PowerDown) })
		r.settled(ctx, t, uuid)
	})
}

// deploys has something deployed on a node, once, and taken away.
func deploys(ctx context.Context, t *testing.T, r rack) {
	t.Helper()
	uuid := r.enrol(t, 6)
	d := hoststate.Deployment{Instance: "6f9619ff-8b86-4011-b42d-00cf4fc964ff", Info: map[string]any{
		"image_source": "http://127.0.0.1:9/image", "image_os_hash_algo": "sha256", "image_os_hash_value": "c0ffee",
		"capabilities": map[string]any{"boot_mode": "uefi"},
	}}
	state := func(want string) func(hoststate.Node) bool {
		return func(n hoststate.Node) bool { return n.State == want && !n.Busy() }
	}
	t.Run("a node is led to a deployment by the plan alone", func(t *testing.T) {
		steps := 0
		for n := r.settled(ctx, t, uuid); n.State != hoststate.Active; n = r.settled(ctx, t, uuid) {
			task := hoststate.DeploymentTask(n, d, hoststate.Past{})
			require.Less(t, steps, 20, "%+v %+v", task, n)
			steps++
			switch task.Do {
			case hoststate.SetCleaning:
				ask(t, func() error { return r.SetCleaning(ctx, uuid, d.Clean) })
			case hoststate.Prepare:
				ask(t, func() error { return r.Prepare(ctx, n, d) })
			case hoststate.Ask:
				ask(t, func() error {
					if task.Ask == hoststate.AskDeploy {
						return r.Deploy(ctx, uuid, osimage.ConfigDrive{MetaData: map[string]any{"name": "x"}, UserData: "#cloud-config"})
					}
					return r.SetProvision(ctx, uuid, task.Ask)
				})
			default:
				require.Equal(t, hoststate.Await, task.Do, "%+v", task)
			}
		}
		n := r.settled(ctx, t, uuid)
		assert.Equal(t, hoststate.Task{Do: hoststate.Accept}, hoststate.DeploymentTask(n, d, hoststate.Past{}))
		assert.Equal(t, d.Instance, n.Instance)
	})
	t.Run("a node with an image refuses another deployment", func(t *testing.T) {
		refuses(t, func() error { return r.Deploy(ctx, uuid, osimage.ConfigDrive{}) })
		other := d
		other.Instance = "7f9619ff-8b86-4011-b42d-00cf4fc964ff"
		require.ErrorIs(t, r.Prepare(ctx, r.settled(ctx, t, uuid), other), inventory.ErrBusy, "a node is for one instance")
	})
	t.Run("a node in use changes its driver, and is in use still", func(t *testing.T) {
		before := r.settled(ctx, t, uuid)
		a, err := hoststate.AccessTo(metal3v1.BMCDetails{Address: "redfish-virtualmedia://192.0.2.9/redfish/v1/Systems/1"}, "admin", "x")
		require.NoError(t, err)
		for _, to := range []hoststate.Access{a, {Driver: before.Driver}} {
			ask(t, func() error { return r.Write(ctx, r.settled(ctx, t, uuid), "ns~used", to) })
			n := r.settled(ctx, t, uuid)
			assert.Equal(t, to.Driver, n.Driver)
			assert.Equal(t, hoststate.Active, n.State)
			assert.Equal(t, d.Instance, n.Instance)
			assert.False(t, n.Maintenance)
		}
	})
	t.Run("the deployment ends", func(t *testing.T) {
		ask(t, func() error { return r.SetProvision(ctx, uuid, hoststate.AskDelete) })
		n := r.until(ctx, t, uuid, state(inventory.NodeAvailable))
		assert.Empty(t, n.Instance)
		ask(t, func() error { return r.Prepare(ctx, n, d) })
		n = r.settled(ctx, t, uuid)
		assert.Equal(t, hoststate.Vacate, hoststate.RemovalTask(n, d, hoststate.Past{}).Do)
		ask(t, func() error { return r.Vacate(ctx, uuid) })
		n = r.settled(ctx, t, uuid)
		assert.Empty(t, n.Instance)
		assert.Equal(t, hoststate.Accept, hoststate.RemovalTask(n, d, hoststate.Past{}).Do)
	})
	t.Run("a node in use is deleted in maintenance only", func(t *testing.T) {
		ask(t, func() error { return r.Prepare(ctx, r.settled(ctx, t, uuid), d) })
		r.settled(ctx, t, uuid)
		require.ErrorIs(t, r.DeleteNode(ctx, uuid), inventory.ErrBusy)
		ask(t, func() error { return r.BeginMaintenance(ctx, uuid) })
		assert.True(t, r.settled(ctx, t, uuid).Maintenance)
		ask(t, func() error { return r.DeleteNode(ctx, uuid) })
	})
}

func managing(t *testing.T, r rack) {
	ctx := t.Context()
	uuid := r.enrol(t, 1)

	t.Run("a discovered node is found by a MAC, and not by a name", func(t *testing.T) {
		found, err := r.Find(ctx, []string{"ns~host"}, []string{demo.MAC(1, 1), demo.MAC(1, 0)})
		require.NoError(t, err)
		assert.Equal(t, uuid, found)
		_, err = r.Find(ctx, []string{"ns~host"}, []string{demo.MAC(77, 0)})
		require.ErrorIs(t, err, inventory.ErrNotFound)
	})
	t.Run("the node gets name, driver and access, and nothing is doubled", func(t *testing.T) {
		n := r.settled(ctx, t, uuid)
		assert.Equal(t, "fake-hardware", n.Driver)
		partial := hoststate.Access{Driver: "ipmi", Info: map[string]string{"ipmi_address": "192.0.2.9"}, PasswordKey: "ipmi_password", Password: "x"}
		ask(t, func() error { return r.Write(ctx, n, "ns~host", partial) })
		n = r.settled(ctx, t, uuid)
		a := r.access(t, "wrong")
		ask(t, func() error { return r.Write(ctx, n, "ns~host", a) })
		n = r.settled(ctx, t, uuid)
		assert.Equal(t, "ns~host", n.Name)
		assert.True(t, a.Matches(n), "%+v", n)
		assert.Equal(t, "192.0.2.9", n.Info["ipmi_address"], "existing values are kept, missing ones are added")
		assert.NotContains(t, n.Info, "redfish_password")
		found, err := r.Find(ctx, []string{"ns~host"}, nil)
		require.NoError(t, err)
		assert.Equal(t, uuid, found)
		ask(t, func() error { return r.EnsurePort(ctx, uuid, demo.MAC(1, 0)) })
		_, err = r.Report(ctx, uuid)
		require.NoError(t, err, "the inventory stays")
	})
	t.Run("a part that the address lacks goes", func(t *testing.T) {
		write := func(address string) hoststate.Node {
			a, err := hoststate.AccessTo(metal3v1.BMCDetails{Address: address}, "admin", "x")
			require.NoError(t, err)
			n := r.settled(ctx, t, uuid)
			ask(t, func() error { return r.Write(ctx, n, "ns~host", a) })
			n = r.settled(ctx, t, uuid)
			assert.True(t, a.Matches(n), "%s: %+v", address, n)
			return n
		}
		assert.Equal(t, "6230", write("ipmi://192.0.2.9:6230?privilegelevel=OPERATOR").Info["ipmi_port"])
		n := write("ipmi://192.0.2.9")
		assert.NotContains(t, n.Info, "ipmi_port")
		assert.Equal(t, "OPERATOR", n.Info["ipmi_priv_level"], "what an administrator may have set stays")
		write("redfish://192.0.2.9/redfish/v1/Systems/2")
		n = write("redfish://192.0.2.9")
		assert.NotContains(t, n.Info, "redfish_system_id")
		assert.Equal(t, "ipxe", n.Boot)
	})
	t.Run("a node boots as the address says", func(t *testing.T) {
		write := func(address string) hoststate.Node {
			a, err := hoststate.AccessTo(metal3v1.BMCDetails{Address: address}, "admin", "x")
			require.NoError(t, err)
			n := r.settled(ctx, t, uuid)
			ask(t, func() error { return r.Write(ctx, n, "ns~host", a) })
			return r.settled(ctx, t, uuid)
		}
		for _, before := range []string{"redfish://192.0.2.9", "ipmi://192.0.2.9"} {
			write(before)
			assert.Equal(t, "redfish-virtual-media", write("redfish-virtualmedia://192.0.2.9/redfish/v1/Systems/1").Boot, "after %s", before)
		}
		ask(t, func() error { return r.SetDriver(ctx, uuid, "ipmi") })
		ask(t, func() error { return r.SetDriver(ctx, uuid, "redfish", "redfish-virtual-media") })
		assert.Equal(t, "redfish-virtual-media", r.settled(ctx, t, uuid).Boot, "after a hand-over, too")
		ask(t, func() error { return r.SetDriver(ctx, uuid, "ipmi") })
		ask(t, func() error { return r.SetDriver(ctx, uuid, "redfish") })
		n := r.settled(ctx, t, uuid)
		assert.Equal(t, "ipxe", n.Boot)
		ask(t, func() error { return r.Write(ctx, n, "ns~host", r.access(t, "wrong")) })
	})
	t.Run("a wrong password is refused by the management controller", func(t *testing.T) {
		ask(t, func() error { return r.SetProvision(ctx, uuid, "manage") })
		n := r.settled(ctx, t, uuid)
		assert.Equal(t, inventory.NodeEnroll, n.State)
		assert.True(t, hoststate.Refusal(n.LastError), n.LastError)
		assert.Equal(t, hoststate.Refuse, hoststate.Registration(n, hoststate.AskedManage))
	})
	t.Run("the right one is accepted", func(t *testing.T) {
		n := r.settled(ctx, t, uuid)
		ask(t, func() error { return r.Write(ctx, n, "ns~host", r.access(t, "right")) })
		ask(t, func() error { return r.SetProvision(ctx, uuid, "manage") })
		n = r.settled(ctx, t, uuid)
		assert.Equal(t, inventory.NodeManageable, n.State, n.LastError)
		assert.Equal(t, hoststate.PowerDown, n.Power)
		assert.Equal(t, hoststate.Accept, hoststate.Registration(n, hoststate.AskedManage))
	})
	t.Run("the power is switched", func(t *testing.T) {
		for _, target := range []string{hoststate.PowerOn, hoststate.Rebooting, hoststate.PowerDown} {
			ask(t, func() error { return r.SetPower(ctx, uuid, target) })
			want := hoststate.PowerOn
			if target == hoststate.PowerDown {
				want = target
			}
			n := r.settled(ctx, t, uuid)
			assert.Equal(t, want, n.Power, n.LastError)
			assert.Equal(t, want == hoststate.PowerOn, r.power(uuid), target)
		}
	})
	inspects(ctx, t, r, uuid)
	deploys(ctx, t, r)
	t.Run("renewed credentials of a managed node are verified by asking for the power", func(t *testing.T) {
		n := r.settled(ctx, t, uuid)
		ask(t, func() error { return r.Write(ctx, n, "ns~host", r.access(t, "wrong")) })
		ask(t, func() error { return r.SetPower(ctx, uuid, hoststate.PowerDown) })
		n = r.settled(ctx, t, uuid)
		assert.Equal(t, hoststate.Refuse, hoststate.Registration(n, hoststate.AskedPower), "%+v", n)
		assert.True(t, hoststate.Refusal(n.LastError), n.LastError)
		ask(t, func() error { return r.Write(ctx, n, "ns~host", r.access(t, "right")) })
		ask(t, func() error { return r.SetPower(ctx, uuid, hoststate.PowerDown) })
		assert.Equal(t, hoststate.Accept, hoststate.Registration(r.settled(ctx, t, uuid), hoststate.AskedPower))
	})
	t.Run("a node is made once, and has the MAC of its host", func(t *testing.T) {
		made, err := r.EnrolNode(ctx, "ns~by-hand", r.access(t, "right"))
		require.NoError(t, err)
		_, err = r.EnrolNode(ctx, "ns~by-hand", r.access(t, "right"))
		require.ErrorIs(t, err, inventory.ErrBusy)
		n := r.settled(ctx, t, uuid)
		refuses(t, func() error { return r.Write(ctx, n, "ns~by-hand", r.access(t, "right")) })
		ask(t, func() error { return r.EnsurePort(ctx, made, demo.MAC(8, 0)) })
		ask(t, func() error { return r.EnsurePort(ctx, made, demo.MAC(8, 0)) })
		refuses(t, func() error { return r.EnsurePort(ctx, made, demo.MAC(1, 0)) })
		found, err := r.Find(ctx, nil, []string{demo.MAC(8, 0)})
		require.NoError(t, err)
		assert.Equal(t, made, found)
		_, err = r.EnrolNode(ctx, "ns~other", hoststate.Access{Driver: "no-such-driver", PasswordKey: "p"})
		require.ErrorIs(t, err, inventory.ErrRefused)
		ask(t, func() error { return r.DeleteNode(ctx, made) })
	})
	t.Run("an impossible change is refused, and a deleted node is not found", func(t *testing.T) {
		refuses(t, func() error { return r.SetProvision(ctx, uuid, "manage") })
		require.Error(t, r.SetPower(ctx, uuid, "half on"))
		ask(t, func() error { return r.DeleteNode(ctx, uuid) })
		_, err := r.Managed(ctx, uuid)
		require.ErrorIs(t, err, inventory.ErrNotFound)
		require.ErrorIs(t, r.SetPower(ctx, uuid, hoststate.PowerOn), inventory.ErrNotFound)
	})
}
