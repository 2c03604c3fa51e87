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
	"slices"
)

// ControlPlanePath is the file in which a node image finds ControlPlane. Only machines that run the control plane have it.
const ControlPlanePath = "/etc/muster/control-plane.json"

// ControlPlane lets a machine run the control plane of its cluster, alone or with others. All of it is a secret: its holder is the cluster's authority.
type ControlPlane struct {
	// Cluster is the name of the cluster.
	Cluster string `json:"cluster"`
	// Server is the URL of the API server, https://address:port, with an address of the machine, or with one that belongs to none of a group.
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
	// Group is of machines that run the control plane together; nil where this machine runs it alone.
	Group *Group `json:"group,omitempty"`
}

// Group is a control plane on several machines, as one of them sees it.
type Group struct {
	// Name is that of this machine among the members.
	Name string `json:"name"`
	// Members are all machines of the group. They do not change.
	Members []Member `json:"members"`
	Shared
}

// Member is a machine of a group, which stores the cluster with the others.
type Member struct {
	Name string `json:"name"`
	// Address is one that the machine keeps: the others know it by that.
	Address netip.Addr `json:"address"`
}

// Shared are the secrets that all machines of a group have beside the authority of the cluster.
type Shared struct {
	// ServiceAccountKey signs the tokens of service accounts, in PEM.
	ServiceAccountKey string `json:"serviceAccountKey"`
	// FrontProxy signs the API server's certificate as a proxy of aggregated APIs, and Etcd those of the members of etcd. Neither is an authority of the cluster.
	FrontProxy Authority `json:"frontProxy"`
	Etcd       Authority `json:"etcd"`
}

// Authority is a certificate authority, in PEM.
type Authority struct {
	CA    string `json:"ca"`
	CAKey string `json:"caKey"`
}

// String hides the keys.
func (Shared) String() string { return "[keys of a control plane]" }

// GoString hides the keys.
func (s Shared) GoString() string { return s.String() }

// String hides the key.
func (Authority) String() string { return "[certificate authority]" }

// GoString hides the key.
func (a Authority) GoString() string { return a.String() }

// Own is the member that this machine is.
func (g *Group) Own() Member {
	i := slices.IndexFunc(g.Members, func(m Member) bool { return m.Name == g.Name })
	return g.Members[i] // it was validated when it was read
}

// validate says what a group cannot run with.
func (g *Group) validate() error {
	var errs []error
	names, addresses := map[string]bool{}, map[netip.Addr]bool{}
	for _, m := range g.Members {
		names[m.Name], addresses[m.Address] = true, m.Address.IsValid()
	}
	if len(g.Members) < 3 || len(names) < len(g.Members) || len(addresses) < len(g.Members) || addresses[netip.Addr{}] || names[""] {
		errs = append(errs, errors.New("group.members needs three machines or more, each with a name and an address of its own"))
	}
	if !names[g.Name] {
		errs = append(errs, errors.New("group.name is none of group.members"))
	}
	for name, value := range map[string]string{
		"serviceAccountKey": g.ServiceAccountKey, "frontProxy.ca": g.FrontProxy.CA, "frontProxy.caKey": g.FrontProxy.CAKey, "etcd.ca": g.Etcd.CA, "etcd.caKey": g.Etcd.CAKey,
	} {
		if block, _ := pem.Decode([]byte(value)); block == nil {
			errs = append(errs, fmt.Errorf("group.%s holds no PEM block", name))
		}
	}
	return errors.Join(errs...)
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

// Address is that of the API.
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
	if c.Group != nil {
		errs = append(errs, c.Group.validate())
	}
	return errors.Join(errs...)
}
