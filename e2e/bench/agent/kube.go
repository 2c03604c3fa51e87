// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"fmt"
	"net/http"
	"path/filepath"
	"regexp"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	agentv1 "github.com/muster-io/muster/apis/agentinstall/v1beta1"
	hivev1 "github.com/muster-io/muster/apis/hive/v1"
	"github.com/muster-io/muster/e2e/environment"
)

// hub is a control plane with the custom resources, beside the service.
type hub struct {
	admin  *rest.Config
	client client.Client
	// kubeconfig is that of the service's own account, adminKubeconfig the administrator's.
	kubeconfig, adminKubeconfig string
	close                       func() error
}

func startHub(ctx context.Context) (*hub, error) {
	local, err := environment.NewLocal(ctx, environment.LocalOptions{UnsafeNoFsync: true, Prefix: "muster-bench-"})
	if err != nil {
		return nil, err
	}
	h := &hub{kubeconfig: filepath.Join(local.Dir, "service.kubeconfig"), adminKubeconfig: local.Kubeconfig(), close: func() error { return local.Close(context.WithoutCancel(ctx)) }}
	if h.admin, err = environment.Config(local); err != nil {
		return h, err
	}
	if h.client, err = clientOf(h.admin); err != nil {
		return h, err
	}
	service := environment.AgentService()
	token, err := local.Token(ctx, service.Namespace, service.ServiceAccount)
	if err != nil {
		return h, err
	}
	return h, environment.WriteKubeconfig(h.admin, token, service.Namespace, h.kubeconfig)
}

func clientOf(config *rest.Config) (client.Client, error) {
	scheme := runtime.NewScheme()
	if err := clientgoscheme.AddToScheme(scheme); err != nil {
		return nil, err
	}
	if err := agentv1.AddToScheme(scheme); err != nil {
		return nil, err
	}
	if err := hivev1.AddToScheme(scheme); err != nil {
		return nil, err
	}
	return client.New(config, client.Options{Scheme: scheme})
}

// infraEnv makes an InfraEnv and returns the id that the service knows it by.
func (h *hub) infraEnv(ctx context.Context) (string, error) {
	meta := metav1.ObjectMeta{Name: "bench", Namespace: metav1.NamespaceDefault}
	secret := &corev1.Secret{ObjectMeta: meta, Type: corev1.SecretTypeDockerConfigJson, Data: map[string][]byte{corev1.DockerConfigJsonKey: []byte(`{"auths":{}}`)}}
	if err := h.client.Create(ctx, secret); err != nil {
		return "", fmt.Errorf("making a pull secret: %w", err)
	}
	env := &agentv1.InfraEnv{ObjectMeta: meta}
	env.Spec.PullSecretRef = agentv1.SecretReference{Name: secret.Name}
	if err := h.client.Create(ctx, env); err != nil {
		return "", fmt.Errorf("making an InfraEnv: %w", err)
	}
	return string(env.UID), nil
}

// agents counts the Agents.
func (h *hub) agents(ctx context.Context) (int, error) {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(agentv1.GroupVersion.WithKind("AgentList"))
	err := h.client.List(ctx, list, client.InNamespace(metav1.NamespaceDefault))
	return len(list.Items), err
}

// written matches the counters of writes to the service's kinds, as the API server keeps them.
var written = regexp.MustCompile(`(?m)^apiserver_request_total\{[^}]*group="(?:agent-install|extensions\.hive)\.openshift\.io"[^}]*verb="(?:POST|PUT|PATCH|APPLY|DELETE|DELETECOLLECTION)"[^}]*\} (\S+)$`)

// writes is how many writes to the service's kinds the API server has seen, of all clients.
func (h *hub) writes(ctx context.Context) (float64, error) {
	clients, err := kubernetes.NewForConfig(h.admin)
	if err != nil {
		return 0, err
	}
	text, err := clients.Discovery().RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
	if err != nil {
		return 0, fmt.Errorf("reading the API server's metrics: %w", err)
	}
	var sum float64
	for _, match := range written.FindAllSubmatch(text, -1) {
		value, err := strconv.ParseFloat(string(match[1]), 64)
		if err != nil {
			return 0, err
		}
		sum += value
	}
	return sum, nil
}

// quiet waits until there was no write for a while.
func (h *hub) quiet(ctx context.Context, silence, limit time.Duration) error {
	last, since := -1.0, time.Now()
	// The API server takes long to write its metrics: asked more often, it would have less time for what is waited for.
	return awaitEach(ctx, silence/6, limit, func() (string, error) {
		now, err := h.writes(ctx)
		if err != nil {
			return "", err
		}
		if now != last {
			last, since = now, time.Now()
		}
		if time.Since(since) < silence {
			return fmt.Sprintf("something is being written: %.0f writes so far", now), nil
		}
		return "", nil
	})
}

// known waits until the service answers for its InfraEnv.
func (s *site) known(ctx context.Context) error {
	return await(ctx, time.Minute, func() (string, error) {
		if err := s.call(ctx, http.MethodGet, "/infra-envs/"+s.infraEnv, nil, nil); err != nil {
			return "the service does not know the InfraEnv", nil //nolint:nilerr // it is asked again
		}
		return "", nil
	})
}
