// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package environment

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/muster-io/muster/apis/porttest"
	"github.com/muster-io/muster/e2e/checkout"
)

// Operator says how one operator runs as a process.
type Operator struct {
	// Name is that of the program in bin/ and of the directories in deploy/base and deploy/overlays/*.
	Name string
	// Program is the path of another program than the one in bin/, such as that of a former release. It may be empty.
	Program string
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

// HostedListenAddress is what hosted clusters of later PoolOperators listen on; empty for loopback. Set it before an environment is made.
var HostedListenAddress string

// Listen listens at a free port of the address.
func Listen(ctx context.Context, address string) (net.Listener, error) {
	return (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort(address, "0"))
}

// PoolOperator runs hosted clusters as child processes.
func PoolOperator() Operator {
	return Operator{
		Name: "pool-operator", Namespace: "muster-pool-operator", ServiceAccount: "pool-operator",
		Args: func(dir string) []string {
			args := []string{"--hosted-runtime=process", "--hosted-data-dir=" + filepath.Join(dir, "hosted")}
			if HostedListenAddress != "" {
				args = append(args, "--hosted-listen-address="+HostedListenAddress)
			}
			return args
		},
	}
}

// IPAMOperator gives out addresses, and renders network data.
func IPAMOperator() Operator {
	return Operator{
		Name: "ipam-operator", Namespace: "muster-ipam-operator", ServiceAccount: "ipam-operator",
		Args: func(string) []string {
			return append([]string{"--network-data"}, webhook()...)
		},
	}
}

// DiscoveryOperator looks at a small rack that it makes up, and checks hosts for the API server beside it.
func DiscoveryOperator() Operator {
	return Operator{
		Name: "discovery-operator", Namespace: "muster-discovery-operator", ServiceAccount: "discovery-operator",
		Args: func(string) []string {
			return append([]string{"--provisioner=demo", "--demo-machines=8", "--demo-interval=400ms"}, webhook()...)
		},
	}
}

// webhook are the flags by which an operator answers the API server beside it.
func webhook() []string {
	port, err := porttest.Find()
	if err != nil {
		return nil
	}
	address := "127.0.0.1:" + port
	return []string{"--webhook-bind-address=" + address, "--webhook-url=https://" + address}
}

// AgentService looks after hosts that booted its discovery images; people come to it with tokens that the control plane knows.
func AgentService() Operator {
	return Operator{
		Name: "agent-service", Namespace: "muster-agent-service", ServiceAccount: "agent-service",
		Args: func(dir string) []string {
			args := []string{
				"--kube-api", "--database=" + filepath.Join(dir, "agent-service.db"), "--token-key=" + filepath.Join(dir, "token.key"), "--metrics-auth=kubernetes",
				"--oidc-issuer=kubernetes", "--oidc-audience=agent-service", "--oidc-admin-group=system:serviceaccounts:muster-agent-service", "--live-image-cache=" + filepath.Join(dir, "live-images"), "--console",
			}
			if address, err := serviceAddress(dir); err == nil {
				args = append(args, "--listen="+address, "--base-url=http://"+address)
			}
			if list, err := ownLiveImage(dir); err == nil {
				args = append(args, "--live-images="+list)
			}
			if list, err := systemImages(dir); err == nil {
				args = append(args, "--os-images="+list)
			}
			return args
		},
	}
}

// Console is the address of the console of agent-service, empty where that does not run.
func (l *Local) Console() string {
	address, err := os.ReadFile(filepath.Join(l.Dir, "agent-service", "address"))
	if err != nil {
		return ""
	}
	return "http://" + string(address) + "/console"
}

// serviceAddress is the same whenever the service starts again, as images and agents expect.
func serviceAddress(dir string) (string, error) {
	file := filepath.Join(dir, "address")
	if text, err := os.ReadFile(file); err == nil {
		return string(text), nil
	}
	port, err := porttest.Find()
	if err != nil {
		return "", err
	}
	address := "127.0.0.1:" + port
	return address, os.WriteFile(file, []byte(address), 0o600)
}

// ownLiveImage writes the list of live images: the one that make live-image builds, if it is there.
func ownLiveImage(dir string) (string, error) {
	path, err := checkout.Path("bin", "live", "live.iso")
	if err != nil {
		return "", err
	}
	file, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer func() { _ = file.Close() }()
	sum := sha256.New()
	if _, err := io.Copy(sum, file); err != nil {
		return "", err
	}
	list := filepath.Join(dir, "live.json")
	text := fmt.Sprintf(`[{"version":"live","cpuArchitecture":"x86_64","url":%q,"sha256":"%x"}]`, path, sum.Sum(nil))
	return list, os.WriteFile(list, []byte(text), 0o600)
}

// SystemVersion is the version that clusters of AgentService can have.
const SystemVersion = "4.20"

// systemImages writes the list of what clusters are installed with.
func systemImages(dir string) (string, error) {
	text, err := systems()
	if err != nil {
		return "", err
	}
	list := filepath.Join(dir, "systems.json")
	return list, os.WriteFile(list, []byte(text), 0o600)
}

// systems is what clusters are installed with: a small image, served as long as this process lives. Generated machines, which run beside it, download and check it.
func systems() (string, error) {
	address, err := serveSystem()
	if err != nil {
		return "", err
	}
	return fmt.Sprintf(`[{"version":%q,"cpuArchitecture":"x86_64","url":"http://%s/system.img","sha256":"%x"}]`, SystemVersion, address, sha256.Sum256(system)), nil
}

var system = bytes.Repeat([]byte("system\n"), 1<<16)

var serveSystem = sync.OnceValues(func() (string, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("serving the image of a system: %w", err)
	}
	server := &http.Server{ReadHeaderTimeout: 10 * time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(system) })}
	go func() { _ = server.Serve(listener) }()
	return listener.Addr().String(), nil
})

// All returns every operator that overlays/local holds.
func All() []Operator {
	return []Operator{PoolOperator(), IPAMOperator(), DiscoveryOperator(), AgentService()}
}
