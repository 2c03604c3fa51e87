// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package move

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/util/yaml"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/cluster-api/cmd/clusterctl/client/cluster"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Paths of the repository that the tests use, from here.
var (
	controlPlane = filepath.Join("..", "..", "bin", "controlplane")
	ipamOperator = filepath.Join("..", "..", "bin", "ipam-operator")
	ourCRDs      = filepath.Join("..", "..", "apis", "crd")
	manifests    = filepath.Join("..", "..", "deploy", "base", "ipam-operator")
	networkData  = filepath.Join("..", "..", "deploy", "components", "network-data")
	mutation     = filepath.Join("..", "..", "deploy", "components", "mutating-admission")
)

// account is the namespace and the name of the operator's ServiceAccount.
var account = client.ObjectKey{Namespace: "muster-ipam-operator", Name: "ipam-operator"}

// plane is a control plane with Cluster API's kinds and ours, and ipam-operator at work.
type plane struct {
	client.WithWatch
	name       string
	dir        string
	config     *rest.Config
	kubeconfig string
	ends       []func()
}

// startPlane returns when the control plane is ready and the operator started.
func startPlane(ctx context.Context, name, dir, crds string) (*plane, error) {
	p := &plane{name: name, dir: filepath.Join(dir, name)}
	if err := os.Mkdir(p.dir, 0o700); err != nil {
		return nil, err
	}
	for _, step := range []func(context.Context) error{
		func(context.Context) error { return p.startAPIServer(crds) }, p.connect, p.install, p.untilInForce, p.startOperator,
	} {
		if err := step(ctx); err != nil {
			return p, fmt.Errorf("%s: %w", name, err)
		}
	}
	return p, nil
}

// close ends what was started, the last first.
func (p *plane) close() {
	for _, end := range slices.Backward(p.ends) {
		end()
	}
}

func (p *plane) startAPIServer(crds string) error {
	cmd := exec.Command(controlPlane, "start", "--until-stdin-closes", "--unsafe-no-fsync", "--crds="+crds)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	var problems bytes.Buffer
	cmd.Stderr = &problems
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("starting the control plane: %w", err)
	}
	line, err := bufio.NewReader(stdout).ReadString('\n')
	p.ends = append(p.ends, func() { _ = stdin.Close(); _ = cmd.Wait() })
	if err != nil {
		return fmt.Errorf("starting the control plane: %w", errors.Join(err, stdin.Close(), cmd.Wait(), errors.New(problems.String())))
	}
	p.kubeconfig = strings.TrimSpace(line)
	return nil
}

// connect makes an unlimited client, and installs the kinds of clusterctl's inventory as "clusterctl init" does.
func (p *plane) connect(ctx context.Context) error {
	var err error
	if p.config, err = clientcmd.BuildConfigFromFlags("", p.kubeconfig); err != nil {
		return err
	}
	p.config.QPS = -1
	scheme := runtime.NewScheme()
	if err := clientgoscheme.AddToScheme(scheme); err != nil {
		return err
	}
	if p.WithWatch, err = client.NewWithWatch(p.config, client.Options{Scheme: scheme}); err != nil {
		return err
	}
	return cluster.New(cluster.Kubeconfig{Path: p.kubeconfig}, nil).ProviderInventory().EnsureCustomResourceDefinitions(ctx)
}

// install applies what deploy holds for ipam-operator with network data, but for what runs it in a cluster.
func (p *plane) install(ctx context.Context) error {
	var files []string
	for _, name := range []string{"namespace.yaml", "serviceaccount.yaml", "role.yaml", "role_binding.yaml", "leader_election.yaml", "admission.yaml"} {
		files = append(files, filepath.Join(manifests, name))
	}
	for _, name := range []string{"role.yaml", "role_binding.yaml"} {
		files = append(files, filepath.Join(networkData, name))
	}
	files = append(files, filepath.Join(mutation, "policy.yaml"))
	for _, file := range files {
		objects, err := readObjects(file)
		if err != nil {
			return err
		}
		for _, obj := range objects {
			mapping, err := p.RESTMapper().RESTMapping(obj.GroupVersionKind().GroupKind(), obj.GroupVersionKind().Version)
			if err != nil {
				return err
			}
			if mapping.Scope.Name() == meta.RESTScopeNameNamespace {
				obj.SetNamespace(account.Namespace)
			}
			if err := p.Create(ctx, obj); err != nil {
				return fmt.Errorf("installing %s: %w", file, err)
			}
		}
	}
	return nil
}

// untilInForce waits until the API server applies the admission policies: it learns of new kinds every few seconds, and refuses objects until then.
func (p *plane) untilInForce(ctx context.Context) error {
	return wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, patience, true, func(ctx context.Context) (bool, error) {
		probe := &unstructured.Unstructured{Object: object{"spec": object{"pool": object{"name": "none"}}}}
		probe.SetGroupVersionKind(claimKind)
		probe.SetNamespace(metav1.NamespaceDefault)
		probe.SetName("probe")
		ranges := &unstructured.Unstructured{Object: pool("probe", object{"pools": span("10.0.0.1", "10.0.0.1")})}
		ranges.SetGroupVersionKind(poolKind)
		ranges.SetNamespace(metav1.NamespaceDefault)
		ranges.SetName("probe")
		err := errors.Join(p.Create(ctx, probe, client.DryRunAll), p.Create(ctx, ranges, client.DryRunAll))
		return err == nil && len(probe.GetFinalizers()) == 1, nil
	})
}

// untilStdinCloses runs a program and kills it when the process that started it is done, or gone.
const untilStdinCloses = `"$@" & cat >/dev/null; kill -9 $!`

// startOperator runs ipam-operator with the rights that its manifests give it.
func (p *plane) startOperator(ctx context.Context) error {
	return p.startOperatorAs(ctx, account, "--network-data")
}

// startOperatorAs runs ipam-operator with the rights of a ServiceAccount.
func (p *plane) startOperatorAs(ctx context.Context, account client.ObjectKey, flags ...string) error {
	token := &authenticationv1.TokenRequest{}
	serviceAccount := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: account.Namespace, Name: account.Name}}
	if err := p.SubResource("token").Create(ctx, serviceAccount, token); err != nil {
		return fmt.Errorf("asking for a token: %w", err)
	}
	kubeconfig := filepath.Join(p.dir, "operator.kubeconfig")
	authority := &clientcmdapi.Cluster{Server: p.config.Host, CertificateAuthority: p.config.CAFile, CertificateAuthorityData: p.config.CAData}
	if err := writeKubeconfig(kubeconfig, authority, token.Status.Token); err != nil {
		return err
	}
	log, err := os.Create(p.operatorLog())
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()
	cmd := exec.Command("sh", append([]string{
		"-c", untilStdinCloses, "sh", ipamOperator, "--kubeconfig=" + kubeconfig, "--health-probe-bind-address=0", "--metrics-bind-address=0",
	}, flags...)...)
	cmd.Stdout, cmd.Stderr = log, log
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("starting ipam-operator: %w", err)
	}
	p.ends = append(p.ends, func() { _ = stdin.Close(); _ = cmd.Wait() })
	return nil
}

func (p *plane) operatorLog() string { return filepath.Join(p.dir, "ipam-operator.log") }

func writeKubeconfig(path string, to *clientcmdapi.Cluster, token string) error {
	file := clientcmdapi.NewConfig()
	file.Clusters["plane"] = to
	file.AuthInfos["user"] = &clientcmdapi.AuthInfo{Token: token}
	file.Contexts["it"] = &clientcmdapi.Context{Cluster: "plane", AuthInfo: "user"}
	file.CurrentContext = "it"
	return clientcmd.WriteToFile(*file, path)
}

// metal3MachineCRD is as much of the infrastructure provider's machine as it takes to own a claim of network data.
const metal3MachineCRD = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: metal3machines.infrastructure.cluster.x-k8s.io
  labels: {clusterctl.cluster.x-k8s.io: ""}
spec:
  group: infrastructure.cluster.x-k8s.io
  names: {kind: Metal3Machine, listKind: Metal3MachineList, plural: metal3machines, singular: metal3machine}
  scope: Namespaced
  versions:
  - name: v1beta1
    served: true
    storage: true
    schema:
      openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}
`

// writeCRDs collects the kinds of Cluster API and ours in a directory. Those of Cluster API get the label that "clusterctl init" gives them; ours have it.
func writeCRDs(ctx context.Context, dir string) error {
	module, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/cluster-api").Output()
	if err != nil {
		return fmt.Errorf("looking for the sources of Cluster API: %w", err)
	}
	for _, kind := range []string{"cluster.x-k8s.io_clusters", "cluster.x-k8s.io_machines", "ipam.cluster.x-k8s.io_ipaddressclaims", "ipam.cluster.x-k8s.io_ipaddresses"} {
		objects, err := readObjects(filepath.Join(strings.TrimSpace(string(module)), "config", "crd", "bases", kind+".yaml"))
		if err != nil {
			return err
		}
		for _, crd := range objects {
			crd.SetLabels(map[string]string{"clusterctl.cluster.x-k8s.io": ""})
			text, err := crd.MarshalJSON()
			if err != nil {
				return err
			}
			if err := os.WriteFile(filepath.Join(dir, kind+".json"), text, 0o600); err != nil {
				return err
			}
		}
	}
	for _, group := range []string{"ipam.metal3.io", "infrastructure.cluster.x-k8s.io", "metal3.io"} {
		files, err := filepath.Glob(filepath.Join(ourCRDs, group+"_*.yaml"))
		if err != nil || len(files) == 0 {
			return fmt.Errorf("no kinds of %s in %s", group, ourCRDs)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				return err
			}
			if err := os.WriteFile(filepath.Join(dir, filepath.Base(file)), text, 0o600); err != nil {
				return err
			}
		}
	}
	return os.WriteFile(filepath.Join(dir, "metal3machines.yaml"), []byte(metal3MachineCRD), 0o600)
}

func readObjects(path string) ([]*unstructured.Unstructured, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var objects []*unstructured.Unstructured
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(content), 4096)
	for {
		obj := &unstructured.Unstructured{}
		if err := decoder.Decode(&obj.Object); errors.Is(err, io.EOF) {
			return objects, nil
		} else if err != nil {
			return nil, fmt.Errorf("reading %s: %w", path, err)
		}
		if obj.Object != nil { // and not comments only
			objects = append(objects, obj)
		}
	}
}

// testEnv is where a Cluster is and where it goes to.
type testEnv struct {
	source, target *plane
	err            error
}

// both starts the two planes, once for all tests.
var both = sync.OnceValue(func() *testEnv {
	w := &testEnv{}
	ctx := context.Background()
	crds := filepath.Join(scratch, "crds")
	if w.err = errors.Join(os.Mkdir(crds, 0o700), writeCRDs(ctx, crds)); w.err != nil {
		return w
	}
	var group sync.WaitGroup
	var failed error
	group.Go(func() { w.target, failed = startPlane(ctx, "target", scratch, crds) })
	w.source, w.err = startPlane(ctx, "source", scratch, crds)
	group.Wait()
	w.err = errors.Join(w.err, failed)
	return w
})
