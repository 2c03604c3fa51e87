// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package environment

import "path/filepath"

// Operator says how one operator runs as a process.
type Operator struct {
	// Name is that of the program in bin/ and of the directories in deploy/base and deploy/overlays/*.
	Name string
	// Namespace and ServiceAccount say whose rights it has.
	Namespace, ServiceAccount string
	// Replica tells processes of one operator apart, where there are several.
	Replica string
	// Args are its flags besides --kubeconfig and the addresses. dir is a directory of its own that lives as long as the environment.
	Args func(dir string) []string
}

// ID names the process: it is what KillOperator, Log and MetricsAddress take.
func (o Operator) ID() string {
	if o.Replica == "" {
		return o.Name
	}
	return o.Name + "-" + o.Replica
}

// PoolOperator runs hosted clusters as child processes.
func PoolOperator() Operator {
	return Operator{
		Name: "pool-operator", Namespace: "muster-pool-operator", ServiceAccount: "pool-operator",
		Args: func(dir string) []string {
			return []string{"--hosted-runtime=process", "--hosted-data-dir=" + filepath.Join(dir, "hosted")}
		},
	}
}

// IPAMOperator gives out addresses, and renders network data.
func IPAMOperator() Operator {
	return Operator{
		Name: "ipam-operator", Namespace: "muster-ipam-operator", ServiceAccount: "ipam-operator",
		Args: func(string) []string { return []string{"--network-data"} },
	}
}

// DiscoveryOperator looks at a small rack that it makes up, and checks hosts for the API server beside it.
func DiscoveryOperator() Operator {
	return Operator{
		Name: "discovery-operator", Namespace: "muster-discovery-operator", ServiceAccount: "discovery-operator",
		Args: func(string) []string {
			args := []string{"--provisioner=demo", "--demo-machines=8", "--demo-interval=400ms"}
			if address, err := freeAddress(); err == nil {
				args = append(args, "--webhook-bind-address="+address, "--webhook-url=https://"+address)
			}
			return args
		},
	}
}

// All returns every operator that overlays/local holds.
func All() []Operator { return []Operator{PoolOperator(), IPAMOperator(), DiscoveryOperator()} }
