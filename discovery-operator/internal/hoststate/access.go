// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package hoststate

import (
	"fmt"
	"net"
	"net/url"
	"slices"
	"strings"

	metal3v1 "github.com/muster-io/muster/apis/metal3/v1alpha1"
	"github.com/muster-io/muster/discovery-operator/internal/handover"
	"github.com/muster-io/muster/discovery-operator/internal/inventory"
)

// Access is how Ironic reaches a management controller.
type Access struct {
	// Driver is Ironic's hardware type.
	Driver string
	// Info is what the node's driver_info has to say, the password not among it.
	Info map[string]string
	// PasswordKey is the key of the password in driver_info.
	// Both are empty where there is no password.
	PasswordKey, Password string
	// Boot are boot interfaces, one of which the node has to have; none for the driver's own choice.
	Boot []string
	// PowerBy is the power interface of the node, empty for the driver's own choice.
	PowerBy string
	// KeepOn says that Ironic never switches the machine off, but restarts it.
	KeepOn  bool
	Machine Machine
}

// AccessTo reads the address of a management controller. It fails with a sentence for the user.
func AccessTo(bmc metal3v1.BMCDetails, username, password string) (Access, error) {
	address := inventory.BMCURL(bmc.Address)
	driver, ok := handover.Driver(address)
	if !ok {
		scheme, _, _ := strings.Cut(address, "://")
		return Access{}, fmt.Errorf("no driver is known for the scheme %q of spec.bmc.address", scheme)
	}
	u, err := url.Parse(address)
	if err != nil || u.Host == "" {
		return Access{}, fmt.Errorf("spec.bmc.address is not an address such as redfish://192.0.2.1/redfish/v1/Systems/1")
	}
	if driver == "ipmi" {
		return ipmi(u, username, password), nil
	}
	transport := "https"
	if _, suffix, _ := strings.Cut(u.Scheme, "+"); suffix == "http" {
		transport = "http"
	}
	a := Access{Driver: driver, Boot: handover.Boot(bmc.Address), PasswordKey: "redfish_password", Password: password, Info: map[string]string{
		"redfish_address": transport + "://" + u.Host, "redfish_username": username,
		keyVerify: map[bool]string{true: "False", false: "True"}[bmc.DisableCertificateVerification],
	}}
	// The root of the service names no system: Ironic looks for the only one, as it does without a path.
	if system := strings.TrimRight(u.Path, "/"); strings.Trim(system, "/") != "" && strings.Trim(system, "/") != "redfish/v1" {
		a.Info["redfish_system_id"] = system
	}
	return a, nil
}

// access is how Ironic reaches the machine of the host.
func (p *pass) access(password string) (Access, error) {
	a, err := AccessTo(*p.Host.Spec.BMC, p.Secret.Username, password)
	a.KeepOn = p.Host.Spec.DisablePowerOff
	return a, err
}

func ipmi(u *url.URL, username, password string) Access {
	a := Access{Driver: "ipmi", PasswordKey: "ipmi_password", Password: password, Info: map[string]string{
		"ipmi_address": u.Hostname(), "ipmi_username": username,
	}}
	if _, port, err := net.SplitHostPort(u.Host); err == nil {
		a.Info[keyPort] = port
	}
	if level := u.Query().Get("privilegelevel"); level != "" {
		a.Info["ipmi_priv_level"] = level
	}
	return a
}

// keyPort is the key of driver_info for the port of IPMI, and usualPort the one that Ironic asks without it.
const keyPort, usualPort = "ipmi_port", "623"

// parts are the keys of driver_info, by that of the password, for a part that an address may lack.
var parts = map[string]string{"ipmi_password": keyPort, "redfish_password": "redfish_system_id"}

// Surplus is the key of a node's driver_info for a part that its address had and that of this access lacks: with it, Ironic would ask another port or
// system. It is empty where there is none.
func (a Access) Surplus(n Node) string {
	key := parts[a.PasswordKey]
	if a.Info[key] != "" || n.Info[key] == "" || key == keyPort && n.Info[key] == usualPort {
		return ""
	}
	return key
}

// Boots reports whether a node boots as this access says.
func (a Access) Boots(n Node) bool {
	return len(a.Boot) == 0 || slices.Contains(a.Boot, n.Boot)
}

// Matches reports whether a node has this access already, as far as that can be read: the password cannot.
func (a Access) Matches(n Node) bool {
	return n.Driver == a.Driver && a.Surplus(n) == "" && (n.KeepOn == nil || *n.KeepOn == a.KeepOn) && len(a.Lacking(n)) == 0
}

// keyVerify is the key of driver_info that says whether the certificate of a management controller is verified: a boolean, or the path of the authorities that are trusted
// on the machine of Ironic. Without it, it is verified.
const keyVerify = "redfish_verify_ca"

// unverified are the values, in lower case, with which Ironic verifies no certificate.
var unverified = []string{"0", "f", "false", "n", "no", "off"}

// Lacking is the part of Info that a node's driver_info does not have. Where certificates are verified, an administrator of Ironic may have named the authorities.
func (a Access) Lacking(n Node) map[string]string {
	out := map[string]string{}
	for key, value := range a.Info {
		have := n.Info[key]
		same := have == value
		if key == keyVerify {
			same = slices.Contains(unverified, strings.ToLower(have)) == slices.Contains(unverified, strings.ToLower(value))
		}
		if !same {
			out[key] = value
		}
	}
	return out
}
