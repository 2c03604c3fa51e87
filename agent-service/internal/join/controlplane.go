// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package join

import (
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
)

// ControlPlanePath is the file in which a node image finds ControlPlane. Only the machine that runs the control plane has it.
const ControlPlanePath = "/etc/muster/control-plane.json"

// ControlPlane lets one machine run the control plane of its cluster. All of it is a secret: its holder is the cluster's authority.
type ControlPlane struct {
	// Cluster is the name of the cluster.
	Cluster string `json:"cluster"`
	// Server is the URL of the API server, https://address:port, with an address of the machine.
	Server string `json:"server"`
	// Names are further DNS names and addresses in the API server's certificate.
	Names []string `json:"names,omitempty"`
	// CA is the PEM certificate of the cluster's authority, and CAKey its key.
	CA    string `json:"ca"`
	CAKey string `json:"caKey"`
	// PodCIDRs and ServiceCIDRs are the networks of the cluster, at most one per family.
	PodCIDRs     []netip.Prefix `json:"podCIDRs"`
	ServiceCIDRs []netip.Prefix `json:"serviceCIDRs"`
	// Objects are documents of YAML that the machine applies in the cluster, in their order.
	Objects string `json:"objects,omitempty"`
}

// String hides the key.
func (*ControlPlane) String() string { return "[control plane]" }

// ReadControlPlane reads the file ControlPlanePath.
func ReadControlPlane(data []byte) (*ControlPlane, error) {
	c := &ControlPlane{}
	if json.Unmarshal(data, c) != nil { // the error may quote the key
		return nil, fmt.Errorf("%s is not a JSON object of a control plane", ControlPlanePath)
	}
	return c, c.Validate()
}

// Address is that at which the API server listens.
func (c *ControlPlane) Address() (netip.AddrPort, error) {
	server, err := url.Parse(c.Server)
	if err != nil || server.Scheme != "https" {
		return netip.AddrPort{}, errors.New("server is not a URL of the form https://address:port")
	}
	address, err := netip.ParseAddrPort(server.Host)
	if err != nil {
		return netip.AddrPort{}, errors.New("server names no address and port")
	}
	return address, nil
}

// Validate says what a control plane cannot run with. Its error contains no secret.
func (c *ControlPlane) Validate() error {
	_, err := c.Address()
	errs := []error{err}
	for name, value := range map[string]string{"ca": c.CA, "caKey": c.CAKey} {
		if block, _ := pem.Decode([]byte(value)); block == nil {
			errs = append(errs, fmt.Errorf("%s holds no PEM block", name))
		}
	}
	if len(c.ServiceCIDRs) == 0 || len(c.PodCIDRs) == 0 {
		errs = append(errs, errors.New("podCIDRs and serviceCIDRs are needed"))
	}
	return errors.Join(errs...)
}
