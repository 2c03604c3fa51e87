// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package rack_test

import (
	"archive/tar"
	"bytes"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/util/cert"

	"github.com/muster-io/muster/apis/netnstest"
	"github.com/muster-io/muster/apis/programtest"
	"github.com/muster-io/muster/e2e/environment"
)

// images is a registry that machines pull from: its certificate is none that systems know.
type images struct {
	// web is the name of the image of the program web.
	web string
	// trust is the PEM certificate of the registry.
	trust string
}

// newImages builds the image and serves it.
func newImages(t *testing.T) images {
	t.Helper()
	certificate, key, err := cert.GenerateSelfSignedCertKey(netnstest.Address, nil, nil)
	require.NoError(t, err)
	pair, err := tls.X509KeyPair(certificate, key)
	require.NoError(t, err)
	server := httptest.NewUnstartedServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	require.NoError(t, server.Listener.Close())
	server.Listener, err = environment.Listen(t.Context(), netnstest.Address)
	require.NoError(t, err)
	server.TLS = &tls.Config{Certificates: []tls.Certificate{pair}}
	server.StartTLS()
	t.Cleanup(server.Close)
	at := images{web: server.Listener.Addr().String() + "/web:1", trust: string(certificate)}
	reference, err := name.ParseReference(at.web)
	require.NoError(t, err)
	transport := http.DefaultTransport.(*http.Transport).Clone() //nolint:forcetypeassert // it is one
	transport.TLSClientConfig = &tls.Config{InsecureSkipVerify: true}
	require.NoError(t, remote.Write(reference, program(t, "./web"), remote.WithTransport(transport), remote.WithContext(t.Context())))
	return at
}

// program is an image of one static program.
func program(t *testing.T, source string) v1.Image {
	t.Helper()
	path := filepath.Join(t.TempDir(), "program")
	build := exec.CommandContext(t.Context(), "go", "build", "-ldflags=-s -w", "-o", path, source)
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	said, err := build.CombinedOutput()
	require.NoError(t, err, string(said))
	content, err := os.ReadFile(path)
	require.NoError(t, err)
	var archive bytes.Buffer
	writer := tar.NewWriter(&archive)
	require.NoError(t, writer.WriteHeader(&tar.Header{Name: "program", Mode: 0o755, Size: int64(len(content)), Format: tar.FormatUSTAR}))
	_, err = writer.Write(content)
	require.NoError(t, errors.Join(err, writer.Close()))
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(archive.Bytes())), nil })
	require.NoError(t, err)
	image, err := mutate.AppendLayers(empty.Image, layer)
	require.NoError(t, err)
	config, err := image.ConfigFile()
	require.NoError(t, err)
	config = config.DeepCopy()
	config.OS, config.Architecture, config.Config.Entrypoint, config.Config.User = "linux", "amd64", []string{"/program"}, "65535:65535"
	image, err = mutate.ConfigFile(image, config)
	require.NoError(t, err)
	return image
}

// workload has a pod on each node, and a Service for both.
const workload = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: default}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      automountServiceAccountToken: false
      terminationGracePeriodSeconds: 1
      affinity:
        podAntiAffinity:
          requiredDuringSchedulingIgnoredDuringExecution: [{topologyKey: kubernetes.io/hostname, labelSelector: {matchLabels: {app: web}}}]
      containers:
      - {name: web, image: %q, ports: [{containerPort: 8080}]}
---
apiVersion: v1
kind: Service
metadata: {name: web, namespace: default}
spec:
  selector: {app: web}
  ports: [{port: 80, targetPort: 8080}]
`

// user has the kubeconfig of a claim, and kubectl.
type user struct {
	*rack
	kubectl, kubeconfig string
}

func (r *rack) newUser(kubeconfig []byte) user {
	r.Helper()
	kubectl, err := environment.Kubectl(r.Context())
	require.NoError(r, err)
	path := filepath.Join(r.TempDir(), "kubeconfig")
	require.NoError(r, os.WriteFile(path, kubeconfig, 0o600))
	return user{r, kubectl, path}
}

func (u user) command(arguments ...string) *exec.Cmd {
	command := exec.CommandContext(u.Context(), u.kubectl, arguments...)
	command.Env = append(os.Environ(), "KUBECONFIG="+u.kubeconfig)
	return command
}

// run returns what kubectl prints.
func (u user) run(input string, arguments ...string) (string, error) {
	command := u.command(arguments...)
	command.Stdin = strings.NewReader(input)
	var said bytes.Buffer
	command.Stderr = &said
	out, err := command.Output()
	if err != nil {
		err = fmt.Errorf("kubectl %s: %w: %s", strings.Join(arguments, " "), err, said.String())
	}
	return string(out), err
}

// until repeats a command of kubectl until it succeeds, and returns what it prints.
func (u user) until(what string, arguments ...string) string {
	u.Helper()
	var out string
	u.waits(what, func() (err error) {
		out, err = u.run("", arguments...)
		return err
	})
	return out
}

// works runs pods on both nodes: they reach each other by their own addresses and by a Service, and the user reads their logs, runs
// commands in them, and forwards a port to them.
func (u user) works(image string) {
	u.Helper()
	_, err := u.run(fmt.Sprintf(workload, image), "apply", "-f", "-")
	require.NoError(u, err)
	u.until("the Deployment runs", "rollout", "status", "deployment/web", "--timeout=1s")
	var pods corev1.PodList
	require.NoError(u, json.Unmarshal([]byte(u.until("the user sees pods", "get", "pods", "-l", "app=web", "-o", "json")), &pods))
	require.Len(u, pods.Items, 2)
	one, two := pods.Items[0], pods.Items[1]
	assert.NotEqual(u, one.Spec.NodeName, two.Spec.NodeName, "there is a pod on each node")
	for _, pod := range []corev1.Pod{one, two} {
		u.waits("the log of a pod is read", func() error {
			out, err := u.run("", "logs", pod.Name)
			if want := "web starts in " + pod.Name + "\n"; err == nil && out != want {
				err = fmt.Errorf("it is %q, not %q", out, want)
			}
			return err
		})
	}
	for from, to := range map[*corev1.Pod]*corev1.Pod{&one: &two, &two: &one} {
		answer := u.until("a pod reaches that of the other node", "exec", from.Name, "--", "/program", "get", "http://"+to.Status.PodIP+":8080", "1")
		assert.Equal(u, to.Name+" "+from.Status.PodIP+"\n", answer, "pods see each other's own addresses")
	}
	service := u.until("the Service has an address", "get", "service", "web", "-o", "jsonpath={.spec.clusterIP}")
	answers := u.until("the Service answers", "exec", one.Name, "--", "/program", "get", "http://"+service, "20")
	assert.Contains(u, answers, one.Name)
	assert.Contains(u, answers, two.Name)
	forward := programtest.Start(u, u.command("port-forward", "service/web", ":80"))
	listens := regexp.MustCompile(`Forwarding from (127\.0\.0\.1:\d+)`)
	u.waits("a forwarded port answers", func() error {
		at := listens.FindStringSubmatch(forward.String())
		if at == nil {
			return errors.New(forward.String())
		}
		response, err := http.Get("http://" + at[1])
		if err != nil {
			return err
		}
		content, err := io.ReadAll(response.Body)
		if err == nil && !strings.Contains(string(content), "web-") {
			err = fmt.Errorf("it answers %s: %s", response.Status, content)
		}
		return errors.Join(err, response.Body.Close())
	})
	u.Log(u.until("the nodes", "get", "nodes", "-o", "wide"))
	u.Log(u.until("the pods", "get", "pods", "-o", "wide"))
}
