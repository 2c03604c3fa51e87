// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeinit

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/muster-io/muster/agent-service/internal/apiaddress"
	"github.com/muster-io/muster/agent-service/internal/controlplane"
	"github.com/muster-io/muster/agent-service/internal/join"
	"github.com/muster-io/muster/agent-service/internal/kubelet"
	"github.com/muster-io/muster/agent-service/internal/supervise"
)

const (
	searchPath       = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
	containerdPath   = "/usr/bin/containerd"
	kubeletPath      = "/usr/bin/kubelet"
	kubeProxyPath    = "/usr/bin/kube-proxy"
	podNetworkPath   = "/usr/bin/pod-network"
	agentPath        = "/usr/bin/agent"
	containerdSocket = "/run/containerd/containerd.sock"
	kubeletHealth    = "http://127.0.0.1:10248/healthz"
	// hostPath is what first-boot data says of this host to the agent.
	hostPath = "/etc/muster/host.json"
	// reportedPath says that an earlier boot has reported Done.
	reportedPath = dataPath + "/lib/muster/reported"
	// controlPlanePath has the data of the control plane of a machine that runs one, programsPath its programs, manifestsPath what a user adds to the cluster.
	controlPlanePath = dataPath + "/lib/muster/control-plane"
	programsPath     = "/usr/bin"
	manifestsPath    = "/opt/openshift"
	logPath          = dataPath + "/log"
	logSize          = 8 << 20
	logsKept         = 3
	grace            = 10 * time.Second
	lookInterval     = 200 * time.Millisecond
)

// node is this machine.
type node struct {
	reaper *supervise.Reaper
	// values are valid if joins is true. Refusal says why the machine cannot join although it is to.
	values  join.Values
	joins   bool
	refusal string
	// plane is the control plane that the machine runs, nil on others.
	plane *join.ControlPlane
	// configured gets each address of the machine.
	configured chan string
}

// configure writes the files of a kubelet that is to join.
func (n node) configure() error {
	files := map[string]string{
		join.CAPath:                   n.values.CA,
		join.KubeletConfigurationPath: n.values.KubeletConfigurationWith(kubeletSettings),
	}
	// A machine that lost its certificate later gets another token by its agent.
	if _, err := os.Stat(join.ClientCertificatePath); errors.Is(err, os.ErrNotExist) && n.values.Token != "" {
		files[join.BootstrapKubeconfigPath] = n.values.BootstrapKubeconfig()
	}
	for path, content := range files {
		if err := writeSecret(path, content); err != nil {
			return err
		}
	}
	return nil
}

// writeSecret replaces a file that only root reads.
func writeSecret(path, content string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil { //nolint:gosec // the files in it are private
		return err
	}
	next := path + ".next"
	if err := os.WriteFile(next, []byte(content), 0o600); err != nil {
		return err
	}
	return os.Rename(next, path)
}

// programs are those of this node, each after what it needs.
func (n node) programs() []supervise.Program {
	programs := []supervise.Program{
		{Name: "network", Once: true, Run: n.address},
		{Name: "containerd", Run: n.process(containerdPath, containerdArguments(n.values)...), Ready: dials(containerdSocket)},
	}
	if n.plane != nil {
		programs = append(programs, controlplane.Machine{
			ControlPlane: n.plane, Dir: controlPlanePath, Programs: programsPath, Manifests: manifestsPath, Process: n.processIn, Interfaces: apiaddress.Interfaces{}, Say: say,
		}.Supervised("network")...)
	}
	if n.joins {
		needed := []string{"network", "containerd"}
		if n.plane != nil && n.plane.Group != nil { // its Node says that the control plane of this machine is up, too
			needed = append(needed, controlplane.Answers)
		}
		programs = append(programs,
			supervise.Program{Name: "kubelet", After: needed, Run: n.client(kubeletPath, kubeletArguments(n.values)...), Ready: healthy(kubeletHealth)},
			supervise.Program{Name: "certificate", Once: true, Run: func(ctx context.Context) error {
				return joinFiles{join.Path, join.BootstrapKubeconfigPath, join.ClientCertificatePath}.forgetToken(ctx, n.values, unix.Sync)
			}},
			supervise.Program{Name: "kube-proxy", After: []string{"certificate"}, Run: n.client(kubeProxyPath, kubeProxyArguments(n.values)...)},
		)
		if n.values.Network == join.HostGateway {
			programs = append(programs, supervise.Program{Name: "pod-network", After: []string{"certificate"}, Run: n.client(podNetworkPath, podNetworkArguments(n.values)...)})
		}
	}
	if _, err := os.Stat(hostPath); err == nil {
		programs = append(programs, n.reports()...)
		programs = append(programs, supervise.Program{Name: "agent", After: []string{"network"}, Run: n.process(agentPath, "--host-file="+hostPath, "--resident")})
	}
	return programs
}

// reports tell agent-service how the installation goes, once.
func (n node) reports() []supervise.Program {
	if _, err := os.Stat(reportedPath); err == nil {
		return nil
	}
	if n.refusal != "" {
		return []supervise.Program{{Name: "report Failed", After: []string{"network"}, Once: true, Run: n.process(agentPath, "--host-file="+hostPath, "--report=Failed", "--detail="+n.refusal)}}
	}
	report := func(stage string, after ...string) supervise.Program {
		return supervise.Program{Name: "report " + stage, After: after, Once: true, Run: n.process(agentPath, "--host-file="+hostPath, "--report="+stage)}
	}
	if !n.joins {
		return []supervise.Program{report("Done", "network")}
	}
	done := report("Done", "report Joined", "kubelet")
	tell := done.Run
	done.Run = func(ctx context.Context) error {
		if err := tell(ctx); err != nil {
			return err
		}
		return os.WriteFile(reportedPath, nil, 0o600)
	}
	return []supervise.Program{report("Configuring", "network"), report("Joined", "report Configuring", "certificate"), done}
}

// client is process for a program that reaches the API server by the kubelet's kubeconfig.
func (n node) client(path string, arguments ...string) func(context.Context) error {
	run := n.process(path, arguments...)
	return func(ctx context.Context) error {
		if err := keepServerName(join.KubeconfigPath, n.values.TLSServerName); err != nil {
			say("%v", err)
		}
		return run(ctx)
	}
}

// process is a program with a log of its own.
func (n node) process(path string, arguments ...string) func(context.Context) error {
	return n.processIn("", path, arguments...)
}

// processIn is process with a working directory.
func (n node) processIn(directory, path string, arguments ...string) func(context.Context) error {
	log := &supervise.Log{Path: filepath.Join(logPath, filepath.Base(path)+".log"), MaxBytes: logSize, Keep: logsKept}
	return supervise.Command{
		Path: path, Args: arguments, Dir: directory, Env: []string{"PATH=" + searchPath, "HOME=/root"}, Output: log, Grace: grace, Reaper: n.reaper,
	}.Run
}

// address waits for the first address, for a time: a kubelet without one starts again by itself.
func (n node) address(ctx context.Context) error {
	select {
	case address := <-n.configured:
		say("this machine has the address %s", address)
	case <-time.After(addressPatience):
		say("this machine has no address yet")
	case <-ctx.Done():
	}
	return nil
}

// joinFiles are the values of a node and the kubeconfig with its bootstrap token, and the kubelet's certificate.
type joinFiles struct{ values, bootstrap, certificate string }

// forgetToken waits for a certificate that the kubelet uses, and deletes the bootstrap token, from the values and with the kubeconfig that has it. One that expired while the machine was off
// is none: the agent brings a token for another one. The files of the kubelet are flushed to the disk before: a machine that lost its power with neither a token nor a certificate would wait for
// its agent.
func (f joinFiles) forgetToken(ctx context.Context, values join.Values, flush func()) error {
	for !f.certified() {
		select {
		case <-time.After(lookInterval):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	flush()
	values.Token = ""
	content, err := json.Marshal(values)
	if err != nil {
		return err
	}
	if err := writeSecret(f.values, string(content)+"\n"); err != nil {
		return err
	}
	if err := kubelet.Erase(f.bootstrap); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// certified says whether the kubelet uses its certificate.
func (f joinFiles) certified() bool {
	content, err := os.ReadFile(f.certificate)
	if err != nil {
		return false
	}
	expires, err := join.CertificateExpires(content)
	return err == nil && !time.Now().After(expires)
}

// dials is ready when something listens on a socket.
func dials(socket string) func(context.Context) error {
	return func(ctx context.Context) error {
		connection, err := (&net.Dialer{}).DialContext(ctx, "unix", socket)
		if err != nil {
			return err
		}
		return connection.Close()
	}
}

// healthy is ready when an address answers 200.
func healthy(address string) func(context.Context) error {
	client := &http.Client{Timeout: 5 * time.Second}
	return func(ctx context.Context) error {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, http.NoBody)
		if err != nil {
			return err
		}
		response, err := client.Do(request)
		if err != nil {
			return err
		}
		if response.StatusCode != http.StatusOK {
			err = fmt.Errorf("%s: %s", address, response.Status)
		}
		return errors.Join(err, response.Body.Close())
	}
}
