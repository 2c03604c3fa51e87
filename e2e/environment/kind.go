// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package environment

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"

	"github.com/muster-io/muster/e2e/checkout"
	"github.com/muster-io/muster/e2e/render"
)

// KindOptions say what a Kind environment holds.
type KindOptions struct {
	// NodeImage of the cluster; the variable KIND_NODE_IMAGE when it is empty.
	NodeImage string
	// Workers is how many nodes there are beside the control plane.
	Workers int
	// Say receives the progress, a sentence at a time. It may be nil.
	Say func(string)
}

// Kind is a kind cluster of its own.
type Kind struct {
	program   string
	name, dir string
	say       func(string)
	guard     *Guard
	closed    bool
}

// removeCluster is what is left to do when this process is gone.
const removeCluster = `
"$1" delete cluster --name "$2" --kubeconfig "$3/kubeconfig" >/dev/null 2>&1
rm -rf "$3"
`

// NewKind makes a cluster with deploy/overlays/kind applied, from images of this checkout, and returns when every operator is available. It needs a container
// engine and a node image.
func NewKind(ctx context.Context, options KindOptions) (*Kind, error) {
	return newKind(ctx, options, (*Kind).start)
}

// NewEmptyKind makes a cluster in which nothing of Muster is installed.
func NewEmptyKind(ctx context.Context, options KindOptions) (*Kind, error) {
	return newKind(ctx, options, (*Kind).create)
}

func newKind(ctx context.Context, options KindOptions, start func(*Kind, context.Context, KindOptions) error) (*Kind, error) {
	if options.Say == nil {
		options.Say = func(string) {}
	}
	if options.NodeImage == "" {
		options.NodeImage = os.Getenv("KIND_NODE_IMAGE")
	}
	if options.NodeImage == "" {
		return nil, errors.New("there is no node image for kind: set KIND_NODE_IMAGE to one that the container engine has or can pull")
	}
	program, err := checkout.Binary("kind")
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "muster-kind-")
	if err != nil {
		return nil, fmt.Errorf("making a directory: %w", err)
	}
	k := &Kind{program: program, name: strings.ToLower(filepath.Base(dir)), dir: dir, say: options.Say}
	if k.guard, err = startGuard(removeCluster, program, k.name, dir); err != nil {
		_ = os.RemoveAll(dir)
		return nil, err
	}
	if err := start(k, ctx, options); err != nil {
		return nil, errors.Join(err, k.Close(ctx))
	}
	return k, nil
}

// create makes the nodes.
func (k *Kind) create(ctx context.Context, options KindOptions) error {
	k.say("creating the cluster " + k.name + " from " + options.NodeImage)
	nodes := []map[string]string{{"role": "control-plane"}}
	for range options.Workers {
		nodes = append(nodes, map[string]string{"role": "worker"})
	}
	text, err := json.Marshal(map[string]any{"kind": "Cluster", "apiVersion": "kind.x-k8s.io/v1alpha4", "nodes": nodes})
	if err != nil {
		return err
	}
	config := filepath.Join(k.dir, "kind.yaml")
	if err := os.WriteFile(config, text, 0o600); err != nil {
		return err
	}
	_, err = run(ctx, k.program, "create", "cluster", "--name", k.name, "--image", options.NodeImage, "--config", config, "--kubeconfig", k.Kubeconfig(), "--wait", "120s")
	return err
}

func (k *Kind) start(ctx context.Context, options KindOptions) error {
	var archives []string
	var unbuilt error
	var builder sync.WaitGroup
	builder.Go(func() { archives, unbuilt = buildImages(ctx) })
	k.say("building images")
	err := k.create(ctx, options)
	builder.Wait()
	if err := errors.Join(err, unbuilt); err != nil {
		return err
	}
	for _, archive := range archives {
		if err := k.Load(ctx, archive); err != nil {
			return err
		}
	}
	if err := k.AddVolumes(ctx); err != nil {
		return err
	}
	config, err := Config(k)
	if err != nil {
		return err
	}
	objects, err := render.Directory("deploy/overlays/kind")
	if err != nil {
		return err
	}
	if err := nameSystems(objects); err != nil {
		return err
	}
	if err := render.Apply(ctx, config, objects); err != nil {
		return err
	}
	k.say(fmt.Sprintf("applied deploy/overlays/kind: %d objects", len(objects)))
	clients, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	return k.untilAvailable(ctx, clients)
}

// buildImages returns the archives of all images.
func buildImages(ctx context.Context) ([]string, error) {
	build, err := checkout.Path("hack", "images", "build")
	if err != nil {
		return nil, err
	}
	names := []string{"--tag=dev", "control-plane"}
	for _, operator := range All() {
		names = append(names, operator.Name)
	}
	archives, err := run(ctx, build, names...)
	return strings.Fields(archives), err
}

// nameSystems says what clusters are installed with, where the overlay says nothing.
func nameSystems(objects []*unstructured.Unstructured) error {
	list, err := systems()
	if err != nil {
		return err
	}
	for _, object := range objects {
		if object.GetKind() == "ConfigMap" && strings.HasPrefix(object.GetName(), "agent-service-systems-") {
			return unstructured.SetNestedField(object.Object, list, "data", "systems.json")
		}
	}
	return errors.New("the overlay has no ConfigMap agent-service-systems")
}

// untilAvailable waits for every Deployment of the cluster: the operators, and the name service that hosted clusters need.
func (k *Kind) untilAvailable(ctx context.Context, clients kubernetes.Interface) error {
	waiting := ""
	err := wait.PollUntilContextTimeout(ctx, time.Second, 3*time.Minute, true, func(ctx context.Context) (bool, error) {
		list, err := clients.AppsV1().Deployments(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
		if err != nil {
			return false, nil //nolint:nilerr // a young API server may not answer at times
		}
		for _, deployment := range list.Items {
			if !available(deployment) {
				waiting = deployment.Namespace + "/" + deployment.Name
				return false, nil
			}
		}
		return len(list.Items) > 0, nil
	})
	if err != nil {
		return fmt.Errorf("waiting for the deployment %s: %w\n%s", waiting, err, k.Describe(ctx))
	}
	k.say("every deployment is available")
	return nil
}

func available(deployment appsv1.Deployment) bool {
	for _, condition := range deployment.Status.Conditions {
		if condition.Type == appsv1.DeploymentAvailable {
			return condition.Status == corev1.ConditionTrue && deployment.Status.ObservedGeneration >= deployment.Generation
		}
	}
	return false
}

// Describe returns what kubectl says about the pods, for the report of a failure. It is best effort.
func (k *Kind) Describe(ctx context.Context) string {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 20*time.Second)
	defer cancel()
	var out strings.Builder
	for _, args := range [][]string{
		{"get", "pods", "-A", "-o", "wide"},
		{"get", "events", "-A", "--sort-by=.lastTimestamp"},
		{"logs", "-n", "muster-pool-operator", "deployment/pool-operator", "--tail=40"},
	} {
		text, err := exec.CommandContext(ctx, "docker", append([]string{
			"exec", k.name + "-control-plane", "kubectl", "--kubeconfig=/etc/kubernetes/admin.conf",
		}, args...)...).CombinedOutput()
		fmt.Fprintf(&out, "$ kubectl %s\n%s", strings.Join(args, " "), text)
		if err != nil {
			fmt.Fprintln(&out, err)
		}
	}
	return out.String()
}

// Kubeconfig returns the path of the administrator's kubeconfig.
func (k *Kind) Kubeconfig() string { return filepath.Join(k.dir, "kubeconfig") }

// Close deletes the cluster.
func (k *Kind) Close(context.Context) error {
	if k.closed {
		return nil
	}
	k.closed = true
	k.say("deleting the cluster " + k.name)
	return k.guard.Close()
}

// run runs a command and returns its standard output; the error holds the end of what it said.
func run(ctx context.Context, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	var stdout, stderr strings.Builder
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		lines := strings.Split(strings.TrimSpace(stderr.String()), "\n")
		if len(lines) > 30 {
			lines = lines[len(lines)-30:]
		}
		return "", fmt.Errorf("%s %s: %w\n%s", filepath.Base(name), strings.Join(args, " "), err, strings.Join(lines, "\n"))
	}
	return stdout.String(), nil
}
