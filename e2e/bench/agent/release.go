// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	agentv1 "github.com/muster-io/muster/apis/agentinstall/v1beta1"
	hivev1 "github.com/muster-io/muster/apis/hive/v1"
	"github.com/muster-io/muster/e2e/bench"
)

// rackRelease is many MachinePools at once that release all their machines, which are installed and ask for instructions: the times are from the scale of each to 0 until the API
// server has an Agent of it in no cluster.
func rackRelease(ctx context.Context, r *bench.Run) (err error) {
	dir, err := os.MkdirTemp("", "muster-bench-os-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	list, stop, err := smallSystem(ctx, dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()
	s, err := startSite(ctx, siteConfig{kube: true, arguments: []string{"-os-images=" + list}})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	pools := r.Scaled(100)
	if err := s.installed(ctx, pools); err != nil {
		return err
	}
	return measure(ctx, r, s, pools, 2000, s.hub.releaseAll, "unbound", "released")
}

// installed has machines installed in clusters that take nodes, by their MachinePools.
func (s *site) installed(ctx context.Context, pools int) error {
	if err := s.hub.nodeAccess(ctx); err != nil {
		return err
	}
	if err := s.approved(ctx, pools*perPool, "-resident"); err != nil {
		return err
	}
	if err := s.hub.takers(ctx, pools); err != nil {
		return err
	}
	if _, err := s.hub.bindAll(ctx, pools, pools); err != nil {
		return err
	}
	err := await(ctx, 15*time.Minute, func() (string, error) {
		all := &agentv1.AgentList{}
		if err := s.hub.client.List(ctx, all, client.InNamespace(metav1.NamespaceDefault)); err != nil {
			return "", err
		}
		installed := 0
		for i := range all.Items {
			if all.Items[i].Status.DebugInfo.State == "added-to-existing-cluster" {
				installed++
			}
		}
		if installed < pools*perPool {
			return fmt.Sprintf("%d of %d machines are installed", installed, pools*perPool), nil
		}
		return "", nil
	})
	if err != nil {
		return err
	}
	return s.hub.quiet(ctx, 3*time.Second, 5*time.Minute)
}

// smallSystem serves an image of a disk, and writes the list that names it.
func smallSystem(ctx context.Context, dir string) (list string, stop func() error, err error) {
	content := make([]byte, 64<<10)
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, fmt.Errorf("serving an image: %w", err)
	}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(content) }), ReadHeaderTimeout: time.Minute}
	go func() { _ = server.Serve(listener) }()
	sum := sha256.Sum256(content)
	list, err = listSystem(dir, listener.Addr().String(), sum)
	return list, server.Close, err
}

// listSystem writes the list of an image that is served at an address.
func listSystem(dir, address string, sum [sha256.Size]byte) (list string, err error) {
	text, err := json.Marshal([]map[string]string{{
		"version": "1.37.2", "cpuArchitecture": "x86_64", "url": "http://" + address + "/os.img", "sha256": hex.EncodeToString(sum[:]),
	}})
	if err != nil {
		return "", err
	}
	list = filepath.Join(dir, "os.json")
	return list, os.WriteFile(list, text, 0o600)
}

// nodeAccess makes the Secret by which machines join; the API server of the benchmark stands for all clusters.
func (h *hub) nodeAccess(ctx context.Context) error {
	kubeconfig, err := os.ReadFile(h.adminKubeconfig)
	if err != nil {
		return fmt.Errorf("reading the kubeconfig: %w", err)
	}
	return h.client.Create(ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "nodes"}, Type: hivev1.SecretTypeNodeAccess,
		Data: map[string][]byte{
			hivev1.SecretKeyKubeconfig: kubeconfig, hivev1.NodeAccessKeyServer: []byte("https://192.0.2.1:6443"), hivev1.NodeAccessKeyCA: h.admin.CAData,
			hivev1.NodeAccessKeyPodCIDR: []byte("10.244.0.0/16"), hivev1.NodeAccessKeyNetwork: []byte(hivev1.NodeNetworkHostGateway), hivev1.NodeAccessKeyKubernetesVersion: []byte("v1.37.2"),
		},
	})
}

// releaseAll scales MachinePools to 0 one after the other, and returns for each machine the time from the scale of its pool until it was seen in no cluster.
func (h *hub) releaseAll(ctx context.Context, pools int) ([]time.Duration, error) {
	released := func(was, is string) (cluster string, ends bool) { return was, was != "" && is == "" }
	return h.follow(ctx, pools, pools, released, func(ctx context.Context, name string) error {
		one := &hivev1.MachinePool{ObjectMeta: workers(name)}
		if err := h.client.SubResource("scale").Update(ctx, one, client.WithSubResourceBody(&autoscalingv1.Scale{ObjectMeta: one.ObjectMeta})); err != nil {
			return fmt.Errorf("scaling a MachinePool: %w", err)
		}
		return nil
	})
}
