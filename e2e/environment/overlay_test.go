// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package environment_test

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	agentv1 "github.com/muster-io/muster/apis/agentinstall/v1beta1"
	"github.com/muster-io/muster/e2e/checkout"
	"github.com/muster-io/muster/e2e/environment"
	"github.com/muster-io/muster/e2e/render"
)

const patience = 3 * time.Minute

// kubelet runs the first container of a Deployment as a process that sees the file system of the container and nothing else.
type kubelet struct {
	t       *testing.T
	config  *rest.Config
	clients kubernetes.Interface
	deploy  *appsv1.Deployment
	root    string
}

func (k *kubelet) write(path string, content []byte, mode os.FileMode) {
	k.t.Helper()
	path = filepath.Join(k.root, path)
	require.NoError(k.t, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(k.t, os.WriteFile(path, content, mode))
	require.NoError(k.t, os.Chown(path, 0, k.account()))
}

// account is the user and the group of the container.
func (k *kubelet) account() int { return int(*k.deploy.Spec.Template.Spec.SecurityContext.RunAsUser) }

func (k *kubelet) container() *corev1.Container { return &k.deploy.Spec.Template.Spec.Containers[0] }

// files are those of a volume; nil for a directory that the container writes to.
func (k *kubelet) files(volume corev1.Volume) map[string][]byte {
	k.t.Helper()
	files := map[string][]byte{}
	switch {
	case volume.EmptyDir != nil:
		return nil
	case volume.ConfigMap != nil:
		found, err := k.clients.CoreV1().ConfigMaps(k.deploy.Namespace).Get(k.t.Context(), volume.ConfigMap.Name, metav1.GetOptions{})
		if volume.ConfigMap.Optional != nil && *volume.ConfigMap.Optional && client.IgnoreNotFound(err) == nil {
			return files
		}
		require.NoError(k.t, err)
		for name, content := range found.Data {
			files[name] = []byte(content)
		}
	case volume.Secret != nil:
		found, err := k.clients.CoreV1().Secrets(k.deploy.Namespace).Get(k.t.Context(), volume.Secret.SecretName, metav1.GetOptions{})
		require.NoError(k.t, err)
		files = found.Data
	default:
		k.t.Fatalf("volume %s is of a kind that this test does not know", volume.Name)
	}
	return files
}

// mount lays out what the container sees: its program, its volumes, and what every pod gets.
func (k *kubelet) mount(program string) {
	k.t.Helper()
	binary, err := os.ReadFile(program)
	require.NoError(k.t, err)
	k.write("/usr/local/bin/"+k.container().Name, binary, 0o755)
	require.NoError(k.t, os.MkdirAll(filepath.Join(k.root, "proc/self"), 0o755))
	require.NoError(k.t, os.Symlink("/usr/local/bin/"+k.container().Name, filepath.Join(k.root, "proc/self/exe")))
	k.write("/usr/local/share/muster/live/live.json", []byte("[]"), 0o644)
	spec := k.deploy.Spec.Template.Spec
	for _, mount := range k.container().VolumeMounts {
		at := slices.IndexFunc(spec.Volumes, func(v corev1.Volume) bool { return v.Name == mount.Name })
		require.GreaterOrEqual(k.t, at, 0, mount.Name)
		require.NoError(k.t, os.MkdirAll(filepath.Join(k.root, mount.MountPath), 0o755))
		files := k.files(spec.Volumes[at])
		if files == nil {
			require.NoError(k.t, os.Chown(filepath.Join(k.root, mount.MountPath), 0, k.account()))
			require.NoError(k.t, os.Chmod(filepath.Join(k.root, mount.MountPath), 0o775))
		}
		for name, content := range files {
			k.write(filepath.Join(mount.MountPath, name), content, 0o440)
		}
	}
	token, err := environment.Token(k.t.Context(), k.config, k.deploy.Namespace, spec.ServiceAccountName)
	require.NoError(k.t, err)
	for name, content := range map[string]string{"token": token, "ca.crt": string(k.config.CAData), "namespace": k.deploy.Namespace} {
		k.write("/var/run/secrets/kubernetes.io/serviceaccount/"+name, []byte(content), 0o440)
	}
}

// start begins the container. It ends by itself, which ended tells, or when stop is called.
func (k *kubelet) start() (said *bytes.Buffer, ended <-chan struct{}, stop func()) {
	k.t.Helper()
	server, err := url.Parse(k.config.Host)
	require.NoError(k.t, err)
	environ := []string{"PATH=/usr/local/bin", "HOSTNAME=" + k.deploy.Name, "KUBERNETES_SERVICE_HOST=" + server.Hostname(), "KUBERNETES_SERVICE_PORT=" + server.Port()}
	var variables []string
	for _, source := range k.container().EnvFrom {
		found, err := k.clients.CoreV1().ConfigMaps(k.deploy.Namespace).Get(k.t.Context(), source.ConfigMapRef.Name, metav1.GetOptions{})
		require.NoError(k.t, err)
		for name, value := range found.Data {
			environ, variables = append(environ, name+"="+value), append(variables, "$("+name+")", value)
		}
	}
	for _, single := range k.container().Env {
		require.Nil(k.t, single.ValueFrom, "this test does not know variables from elsewhere")
		environ, variables = append(environ, single.Name+"="+single.Value), append(variables, "$("+single.Name+")", single.Value)
	}
	var args []string
	for _, arg := range k.container().Args {
		args = append(args, strings.NewReplacer(variables...).Replace(arg))
	}
	said = &bytes.Buffer{}
	process := exec.CommandContext(context.WithoutCancel(k.t.Context()), "/usr/local/bin/"+k.container().Name, args...)
	process.Env, process.Dir, process.Stdout, process.Stderr = environ, "/", said, said
	account := uint32(k.account())
	process.SysProcAttr = &syscall.SysProcAttr{Chroot: k.root, Credential: &syscall.Credential{Uid: account, Gid: account}, Pdeathsig: syscall.SIGKILL}
	require.NoError(k.t, process.Start())
	over := make(chan struct{})
	go func() {
		defer close(over)
		_ = process.Wait()
	}()
	stop = func() {
		_ = process.Process.Signal(syscall.SIGTERM)
		<-over
	}
	return said, over, stop
}

// answers is the status of an answer, 0 for none.
func answers(ctx context.Context, address string) int {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, http.NoBody)
	if err != nil {
		return 0
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0
	}
	_ = response.Body.Close()
	return response.StatusCode
}

// applied returns the named Deployment after everything that the local control plane knows was applied.
func applied(t *testing.T, config *rest.Config, overlay, name string) *appsv1.Deployment {
	t.Helper()
	all, err := render.Directory(overlay)
	require.NoError(t, err)
	known := slices.DeleteFunc(all, func(o *unstructured.Unstructured) bool { return o.GroupVersionKind().Group == "monitoring.coreos.com" })
	require.NoError(t, render.Apply(t.Context(), config, known))
	at := slices.IndexFunc(known, func(o *unstructured.Unstructured) bool { return o.GetKind() == "Deployment" && o.GetName() == name })
	require.GreaterOrEqual(t, at, 0)
	found := &appsv1.Deployment{}
	require.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructured(known[at].Object, found))
	return found
}

// The data in PostgreSQL: the container runs with exactly the arguments, the environment, the files and the account that the overlay gives it.
func TestAgentServiceRunsAsItsProductionOverlaySays(t *testing.T) {
	needControlPlane(t)
	if os.Getuid() != 0 {
		t.Skip("only root gives a process another file system")
	}
	for _, port := range []string{"8081", "8090", "8443"} {
		free, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", ":"+port)
		if err != nil && os.Getenv("CI") != "true" {
			t.Skip("another process has port " + port + ", at which the overlay says that the service listens")
		}
		require.NoError(t, err)
		require.NoError(t, free.Close())
	}
	local, err := environment.NewLocal(t.Context(), environment.LocalOptions{UnsafeNoFsync: true, Prepared: true})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, local.Close(context.WithoutCancel(t.Context()))) })
	config, err := environment.Config(local)
	require.NoError(t, err)
	database, server, err := environment.StartPostgres(context.WithoutCancel(t.Context()), local.Dir)
	if errors.Is(err, environment.ErrNoPostgres) && os.Getenv("CI") != "true" {
		t.Skip(err)
	}
	require.NoError(t, err)
	t.Cleanup(func() {
		_ = server.Process.Kill()
		_ = server.Wait()
	})

	k := &kubelet{t: t, config: config, clients: kubernetes.NewForConfigOrDie(config), deploy: applied(t, config, "deploy/overlays/production/agent-service", "agent-service"), root: t.TempDir()}
	_, key, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(t, err)
	der, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(t, err)
	for name, data := range map[string]map[string][]byte{
		"agent-service-database":  {"url": []byte(database + "\n")},
		"agent-service-token-key": {"token.key": pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})},
	} {
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: k.deploy.Namespace, Name: name}, Data: data}
		_, err := k.clients.CoreV1().Secrets(k.deploy.Namespace).Create(t.Context(), secret, metav1.CreateOptions{})
		require.NoError(t, err)
	}
	program, err := checkout.Binary("agent-service")
	require.NoError(t, err)
	k.mount(program)
	said, ended, stop := k.start()
	t.Cleanup(func() {
		stop()
		if t.Failed() {
			t.Log(said)
		}
	})
	ready := false
	require.Eventually(t, func() bool {
		select {
		case <-ended:
			return true
		default:
			ready = answers(t.Context(), "http://127.0.0.1:8081/readyz") == http.StatusOK
			return ready
		}
	}, patience, 50*time.Millisecond, "the readiness probe")
	require.True(t, ready, "the container ended by itself")

	env := created(t, config)
	assert.Equal(t, http.StatusUnauthorized, answers(t.Context(), "http://127.0.0.1:8090/api/assisted-install/v2/infra-envs"))

	stop()
	assert.NotContains(t, said.String(), "is forbidden", "a right is missing")
	rows, err := exec.CommandContext(t.Context(), "psql", database, "-Atc", "SELECT kube_namespace || '/' || kube_name FROM infra_envs").CombinedOutput()
	require.NoError(t, err, string(rows))
	assert.Equal(t, fmt.Sprintf("%s/%s", env.Namespace, env.Name), strings.TrimSpace(string(rows)), "its InfraEnv is in the database")
}

// created makes an InfraEnv and waits until the service has said something about its image.
func created(t *testing.T, config *rest.Config) *agentv1.InfraEnv {
	t.Helper()
	scheme := runtime.NewScheme()
	require.NoError(t, agentv1.AddToScheme(scheme))
	require.NoError(t, corev1.AddToScheme(scheme))
	admin, err := client.New(config, client.Options{Scheme: scheme})
	require.NoError(t, err)
	require.NoError(t, admin.Create(t.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "pull"}, Type: corev1.SecretTypeDockerConfigJson,
		Data: map[string][]byte{corev1.DockerConfigJsonKey: []byte(`{"auths":{}}`)},
	}))
	env := &agentv1.InfraEnv{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "rack"}}
	env.Spec.PullSecretRef.Name = "pull"
	require.NoError(t, admin.Create(t.Context(), env))
	require.Eventually(t, func() bool {
		return admin.Get(t.Context(), client.ObjectKeyFromObject(env), env) == nil &&
			slices.ContainsFunc(env.Status.Conditions, func(c agentv1.Condition) bool { return c.Type == agentv1.ConditionImageCreated })
	}, patience, 50*time.Millisecond, "the service looks at it")
	return env
}
