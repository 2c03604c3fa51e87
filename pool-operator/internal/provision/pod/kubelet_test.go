// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package pod_test

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-io/muster/pool-operator/internal/provision"
	"github.com/muster-io/muster/pool-operator/internal/provision/pod"
)

// kubelet stands in for the nodes that a control plane alone does not have: it calls each pod of a hosted cluster ready, and answers in its
// place, with the certificates from its Secret, for as long as the pod is there. All the rest is the real thing.
type kubelet struct {
	*testing.T
	client client.Client

	mu      sync.Mutex
	servers map[string]*httptest.Server
	marks   map[string]string // by UID of the volume

	// full says that etcd has no room.
	full atomic.Bool
}

func newKubelet(t *testing.T, c client.Client) *kubelet {
	t.Helper()
	k := &kubelet{T: t, client: c, servers: map[string]*httptest.Server{}, marks: map[string]string{}}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		wait.UntilWithContext(ctx, k.sync, 50*time.Millisecond)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
		for _, server := range k.servers {
			server.Close()
		}
	})
	return k
}

func (k *kubelet) sync(ctx context.Context) {
	var pods corev1.PodList
	if err := k.client.List(ctx, &pods, client.HasLabels{pod.Label}); err != nil {
		return
	}
	for i := range pods.Items {
		p := &pods.Items[i]
		if p.DeletionTimestamp != nil || isReady(p) {
			continue
		}
		p.Status.Phase = corev1.PodRunning
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Now()}}
		_ = k.client.Status().Update(ctx, p) // it is tried again in a moment
	}
}

func isReady(p *corev1.Pod) bool {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue {
			return true
		}
	}
	return false
}

// dial reaches what stands in for the API server behind a Service.
func (k *kubelet) dial(ctx context.Context, _, address string) (net.Conn, error) {
	name, rest, _ := strings.Cut(address, ".")
	namespace, _, _ := strings.Cut(rest, ".")
	var p corev1.Pod
	err := k.client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name + "-0"}, &p)
	if err != nil || !isReady(&p) || p.DeletionTimestamp != nil {
		return nil, fmt.Errorf("no endpoints for %s: %w", address, err)
	}
	server, err := k.server(ctx, namespace, name)
	if err != nil {
		return nil, err
	}
	return (&net.Dialer{}).DialContext(ctx, "tcp", server.Listener.Addr().String())
}

func (k *kubelet) server(ctx context.Context, namespace, name string) (*httptest.Server, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	key := namespace + "/" + name
	if k.servers[key] != nil {
		return k.servers[key], nil
	}
	var secret corev1.Secret
	if err := k.client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name + "-serving"}, &secret); err != nil {
		return nil, err
	}
	certificate, err := tls.X509KeyPair(secret.Data["apiserver.crt"], secret.Data["apiserver.key"])
	if err != nil {
		return nil, err
	}
	server := httptest.NewUnstartedServer(k.api(namespace, name))
	server.TLS = &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12}
	server.Config.SetKeepAlivesEnabled(false)
	server.StartTLS()
	k.servers[key] = server
	return server, nil
}

// api answers what the cases ask. A mark is kept by volume, so that it is lost with it.
func (k *kubelet) api(namespace, name string) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") })
	mux.HandleFunc("GET /version", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `{"gitVersion":"v1.36.3"}`) })
	mux.HandleFunc("POST /apis/coordination.k8s.io/v1/namespaces/kube-system/leases", func(w http.ResponseWriter, _ *http.Request) {
		status := apierrors.NewAlreadyExists(schema.GroupResource{Group: "coordination.k8s.io", Resource: "leases"}, "muster-write-check").Status()
		if k.full.Load() {
			status = apierrors.NewInternalError(errors.New("etcdserver: mvcc: database space exceeded")).Status()
		}
		status.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(int(status.Code))
		_ = json.NewEncoder(w).Encode(status)
	})
	volume := func(ctx context.Context) string {
		var claim corev1.PersistentVolumeClaim
		if err := k.client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: "data-" + name + "-0"}, &claim); err != nil {
			return err.Error()
		}
		return string(claim.UID)
	}
	mux.HandleFunc("PUT /mark", func(_ http.ResponseWriter, r *http.Request) {
		mark, _ := io.ReadAll(r.Body)
		k.mu.Lock()
		defer k.mu.Unlock()
		k.marks[volume(r.Context())] = string(mark)
	})
	mux.HandleFunc("GET /mark", func(w http.ResponseWriter, r *http.Request) {
		k.mu.Lock()
		defer k.mu.Unlock()
		_, _ = io.WriteString(w, k.marks[volume(r.Context())])
	})
	return mux
}

// do sends a request with the administrator's kubeconfig.
func (k *kubelet) do(ctx context.Context, access provision.Access, method, path, body string) (string, error) {
	config, err := clientcmd.RESTConfigFromKubeConfig(access.Kubeconfig)
	if err != nil {
		return "", err
	}
	config.Dial, config.Timeout = k.dial, patience
	httpClient, err := rest.HTTPClientFor(config)
	if err != nil {
		return "", err
	}
	request, err := http.NewRequestWithContext(ctx, method, config.Host+path, strings.NewReader(body))
	if err != nil {
		return "", err
	}
	response, err := httpClient.Do(request)
	if err != nil {
		return "", err
	}
	defer func() { _ = response.Body.Close() }()
	content, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s %s: %s", method, path, response.Status)
	}
	return string(content), err
}

// leftovers names the objects of a cluster that still exist.
func (k *kubelet) leftovers(ctx context.Context, ref provision.ClusterRef) ([]string, error) {
	var left []string
	name := "hosted-" + string(ref.UID[:13])
	for _, object := range []client.Object{
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}}, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name + "-serving"}}, &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: name}},
		statefulSet(name), &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}}, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name + "-0"}},
		&corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "data-" + name + "-0"}},
	} {
		err := k.client.Get(ctx, client.ObjectKey{Namespace: ref.Namespace, Name: object.GetName()}, object)
		if err == nil {
			left = append(left, fmt.Sprintf("%T", object))
		} else if !apierrors.IsNotFound(err) {
			return nil, err
		}
	}
	return left, nil
}

func (k *kubelet) namespace(t *testing.T) string {
	t.Helper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "hosted-"}}
	require.NoError(t, k.client.Create(t.Context(), namespace))
	return namespace.Name
}
