// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	hivev1 "github.com/muster-io/muster/apis/hive/v1"
	"github.com/muster-io/muster/e2e/access"
	"github.com/muster-io/muster/e2e/environment"
	"github.com/muster-io/muster/e2e/render"
)

// Names in deploy/samples.
const (
	samples   = "deploy/samples"
	namespace = "muster-samples"
	poolName  = "workshop"
	claimName = "my-cluster"
	account   = "builder"
)

// patience is for control planes that start on a busy machine.
const patience = 5 * time.Minute

func poolActs() []act {
	return []act{
		{"filling the pool " + poolName + ": three clusters, two of them running", fillPool},
		{"claiming a cluster", claimCluster},
		{"working in the claimed cluster, with the claim's own kubeconfig", useCluster},
		{"refilling the pool", refillPool},
	}
}

// applySamples applies the samples that the filter lets through.
func (s *stage) applySamples(ctx context.Context, filter func(kind string) bool) error {
	all, err := render.Directory(samples)
	if err != nil {
		return err
	}
	var some []*unstructured.Unstructured
	for _, object := range all {
		if filter(object.GetKind()) {
			some = append(some, object)
		}
	}
	return render.Apply(ctx, s.admin, some)
}

func fillPool(ctx context.Context, s *stage) (string, error) {
	started := time.Now()
	if err := s.applySamples(ctx, func(kind string) bool { return kind != "ClusterClaim" }); err != nil {
		return "", err
	}
	if err := s.untilFilled(ctx); err != nil {
		return "", err
	}
	return fmt.Sprintf("the pool is full after %.1f s: two clusters run, one hibernates", time.Since(started).Seconds()), nil
}

func (s *stage) untilFilled(ctx context.Context) error {
	return s.until(ctx, patience, func(ctx context.Context) (bool, error) {
		v, err := s.lookAtPool(ctx)
		if err != nil {
			return false, err
		}
		running, sleeping := 0, 0
		for _, cluster := range v.clusters {
			switch {
			case cluster.Spec.ClusterPoolRef.ClaimName != "":
			case cluster.Status.PowerState == hivev1.PowerStateRunning:
				running++
			case cluster.Status.PowerState == hivev1.PowerStateHibernating:
				sleeping++
			}
		}
		ready := hivev1.IsConditionTrue(v.pool.Status.Conditions, hivev1.ClusterPoolReady)
		return ready && running == int(v.pool.Spec.RunningCount) && sleeping == int(v.pool.Spec.Size-v.pool.Spec.RunningCount), nil
	})
}

func claimCluster(ctx context.Context, s *stage) (string, error) {
	started := time.Now()
	if err := s.applySamples(ctx, func(kind string) bool { return kind == "ClusterClaim" }); err != nil {
		return "", err
	}
	var claimed time.Duration
	claim := &hivev1.ClusterClaim{}
	err := s.until(ctx, patience, func(ctx context.Context) (bool, error) {
		if err := s.client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: claimName}, claim); err != nil {
			return false, err
		}
		usable := hivev1.IsConditionTrue(claim.Status.Conditions, hivev1.ClusterClaimRunning)
		if usable {
			claimed = time.Since(started)
		}
		_, err := s.lookAtPool(ctx)
		return usable, err
	})
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("the claim %s has the cluster %s, running, after %d ms", claimName, claim.Spec.Namespace, claimed.Milliseconds()), nil
}

// useCluster works as the claim's subject: the account's own token reads the kubeconfig, and the kubeconfig gets into the cluster.
func useCluster(ctx context.Context, s *stage) (string, error) {
	claim := &hivev1.ClusterClaim{}
	if err := s.client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: claimName}, claim); err != nil {
		return "", fmt.Errorf("reading the claim: %w", err)
	}
	path, kubeconfig, err := s.fetchKubeconfig(ctx, claim.Spec.Namespace)
	if err != nil {
		return "", err
	}
	config, err := access.Config(kubeconfig, s.admin)
	if err != nil {
		return "", err
	}
	inside, err := kubernetes.NewForConfig(config)
	if err != nil {
		return "", fmt.Errorf("making a client of the claimed cluster: %w", err)
	}
	version, err := inside.Discovery().ServerVersion()
	if err != nil {
		return "", fmt.Errorf("calling /version of the claimed cluster: %w", err)
	}
	s.screen.done(fmt.Sprintf("%s answers: Kubernetes %s", config.Host, version.GitVersion))
	maps := inside.CoreV1().ConfigMaps(metav1.NamespaceDefault)
	hello := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "hello"}, Data: map[string]string{"from": "muster"}}
	if _, err := maps.Create(ctx, hello, metav1.CreateOptions{}); err != nil {
		return "", fmt.Errorf("creating a ConfigMap in the claimed cluster: %w", err)
	}
	list, err := maps.List(ctx, metav1.ListOptions{})
	if err != nil {
		return "", fmt.Errorf("listing ConfigMaps in the claimed cluster: %w", err)
	}
	var names []string
	for _, item := range list.Items {
		names = append(names, item.Name)
	}
	if !strings.Contains(strings.Join(names, " "), "hello") {
		return "", errors.New("the ConfigMap that was created is not in the list")
	}
	s.claimed = path
	return "ConfigMaps in the claimed cluster: " + strings.Join(names, ", "), nil
}

// fetchKubeconfig reads the kubeconfig of a claimed cluster with the rights of the claim's subject, and keeps it in a file.
func (s *stage) fetchKubeconfig(ctx context.Context, cluster string) (string, []byte, error) {
	token, err := environment.Token(ctx, s.admin, namespace, account)
	if err != nil {
		return "", nil, err
	}
	own := filepath.Join(s.local.Dir, account+".kubeconfig")
	if err := environment.WriteKubeconfig(s.admin, token, namespace, own); err != nil {
		return "", nil, err
	}
	config, err := environment.Read(own)
	if err != nil {
		return "", nil, err
	}
	subject, err := client.New(config, client.Options{Scheme: s.client.Scheme()})
	if err != nil {
		return "", nil, fmt.Errorf("making a client: %w", err)
	}
	kubeconfig, err := access.Kubeconfig(ctx, subject, cluster)
	if err != nil {
		return "", nil, err
	}
	path := filepath.Join(s.local.Dir, claimName+".kubeconfig")
	if err := os.WriteFile(path, kubeconfig, 0o600); err != nil {
		return "", nil, fmt.Errorf("keeping the kubeconfig: %w", err)
	}
	return path, kubeconfig, nil
}

func refillPool(ctx context.Context, s *stage) (string, error) {
	started := time.Now()
	if err := s.untilFilled(ctx); err != nil {
		return "", err
	}
	v, err := s.lookAtPool(ctx)
	if err != nil {
		return "", err
	}
	s.screen.show(nil)
	for _, line := range v.table(func(_, text string) string { return text }) {
		s.screen.say("  " + line)
	}
	return fmt.Sprintf("the pool is full again, %.1f s later", time.Since(started).Seconds()), nil
}
