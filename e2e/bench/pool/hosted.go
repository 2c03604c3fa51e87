// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package pool

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	hivev1 "github.com/muster-io/muster/apis/hive/v1"
	"github.com/muster-io/muster/e2e/access"
	"github.com/muster-io/muster/e2e/bench"
)

// hostedReady is how many hosted clusters run and wait for claims.
const hostedReady = 4

func newHostedPool(name string, size, running int) *hivev1.ClusterPool {
	pool := newPool(name, size, running)
	pool.Spec.PullSecretRef, pool.Spec.InstallConfigSecretTemplateRef = nil, nil
	pool.Spec.Platform = hivev1.Platform{Hosted: &hivev1.HostedPlatform{}}
	return pool
}

// hostedClaim claims real clusters that run, one after the other, and works with the kubeconfig of each as the claim's subject.
func hostedClaim(ctx context.Context, r *bench.Run) error {
	w, err := newTestEnv(ctx, r, withoutInstaller)
	if err != nil {
		return err
	}
	defer w.close()
	pool := newHostedPool("hosted", hostedReady, hostedReady)
	if err := w.user.Create(ctx, pool); err != nil {
		return fmt.Errorf("creating a pool: %w", err)
	}
	var waited []time.Duration
	seen := map[string]bool{}
	for i := range w.Scaled(50) {
		if err := w.untilFilled(ctx, pool); err != nil {
			return err
		}
		claim := newClaim(fmt.Sprintf("claim-%02d", i), pool.Name)
		took, err := w.claimToVersion(ctx, claim)
		if err != nil {
			return err
		}
		waited = append(waited, took)
		if seen[claim.Spec.Namespace] {
			return fmt.Errorf("cluster %s was given away twice", claim.Spec.Namespace)
		}
		seen[claim.Spec.Namespace] = true
		if err := w.user.Delete(ctx, claim); err != nil {
			return fmt.Errorf("deleting a claim: %w", err)
		}
	}
	w.Latencies(waited, 300)
	w.Asserted("%d claims, each with a running control plane of its own whose kubeconfig, read as the claim's subject, answers /version", len(waited))
	w.Note("each replacement starts while its claim is served: %d clusters stand ready", hostedReady)
	return w.FigureUsage()
}

// claimToVersion creates a claim and returns how long it took until the cluster's own kubeconfig answered. The claim is brought up to date.
func (w *testEnv) claimToVersion(ctx context.Context, claim *hivev1.ClusterClaim) (time.Duration, error) {
	started := time.Now()
	if err := w.user.Create(ctx, claim); err != nil {
		return 0, fmt.Errorf("creating a claim: %w", err)
	}
	if err := w.untilServed(ctx, []claimed{{name: claim.Name}}); err != nil {
		return 0, err
	}
	if err := w.Get(ctx, client.ObjectKeyFromObject(claim), claim); err != nil {
		return 0, fmt.Errorf("reading a claim: %w", err)
	}
	inside, err := w.enter(ctx, claim.Spec.Namespace)
	if err != nil {
		return 0, err
	}
	version, err := inside.Discovery().ServerVersion()
	if err != nil {
		return 0, fmt.Errorf("calling /version of a cluster that is said to run: %w", err)
	}
	took := time.Since(started)
	if version.GitVersion == "" {
		return 0, errors.New("the claimed cluster does not say its version")
	}
	return took, nil
}

// enter makes a client of a claimed cluster, with what the claim's subject may read.
func (w *testEnv) enter(ctx context.Context, cluster string) (*kubernetes.Clientset, error) {
	config := rest.CopyConfig(w.Admin)
	config.Impersonate = rest.ImpersonationConfig{UserName: subject, Groups: []string{"system:authenticated"}}
	as, err := client.New(config, client.Options{Scheme: w.user.Scheme(), Mapper: w.user.RESTMapper()})
	if err != nil {
		return nil, fmt.Errorf("making a client: %w", err)
	}
	kubeconfig, err := access.Kubeconfig(ctx, as, cluster)
	if err != nil {
		return nil, err
	}
	inside, err := access.Config(kubeconfig, w.Admin)
	if err != nil {
		return nil, err
	}
	return kubernetes.NewForConfig(inside)
}

// hostedResume puts a claimed cluster to sleep and wakes it, again and again.
func hostedResume(ctx context.Context, r *bench.Run) error {
	w, err := newTestEnv(ctx, r, withoutInstaller)
	if err != nil {
		return err
	}
	defer w.close()
	pool := newHostedPool("hosted", 1, 1)
	pool.Spec.MaxSize = new(int32(1))
	claim := newClaim("claim", pool.Name)
	if err := w.user.Create(ctx, pool); err != nil {
		return fmt.Errorf("creating a pool: %w", err)
	}
	if _, err := w.claimToVersion(ctx, claim); err != nil {
		return err
	}
	cluster := claim.Spec.Namespace
	inside, err := w.enter(ctx, cluster)
	if err != nil {
		return err
	}
	note := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "note"}, Data: map[string]string{"from": "before"}}
	if _, err := inside.CoreV1().ConfigMaps(metav1.NamespaceDefault).Create(ctx, note, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("creating a ConfigMap in the cluster: %w", err)
	}
	var took []time.Duration
	for range w.Scaled(10) {
		once, err := w.resume(ctx, cluster, inside)
		if err != nil {
			return err
		}
		took = append(took, once)
	}
	w.Figure("p50_ms", float64(bench.Percentile(took, 0.5).Milliseconds()), "ms", bench.NoTarget)
	w.Figure("p99_ms", float64(bench.Percentile(took, 0.99).Milliseconds()), "ms", bench.NoTarget)
	w.Asserted("%d times asleep, without an answer, and running again with the data of before", len(took))
	return nil
}

// resume puts a cluster to sleep, wakes it and returns how long it took until /readyz answered.
func (w *testEnv) resume(ctx context.Context, cluster string, inside *kubernetes.Clientset) (time.Duration, error) {
	if err := w.setPower(ctx, cluster, hivev1.PowerStateHibernating); err != nil {
		return 0, err
	}
	key := client.ObjectKey{Namespace: cluster, Name: cluster}
	if err := w.Await(ctx, patience, func() string {
		cd := &hivev1.ClusterDeployment{}
		if err := w.Get(ctx, key, cd); err != nil || cd.Status.PowerState != hivev1.PowerStateHibernating {
			return "cluster " + cluster + " does not sleep"
		}
		return ""
	}); err != nil {
		return 0, err
	}
	ready := func() error { return inside.Discovery().RESTClient().Get().AbsPath("/readyz").Do(ctx).Error() }
	if ready() == nil {
		return 0, fmt.Errorf("cluster %s answers although it says that it sleeps", cluster)
	}
	started := time.Now()
	if err := w.setPower(ctx, cluster, hivev1.PowerStateRunning); err != nil {
		return 0, err
	}
	if err := w.Await(ctx, patience, func() string {
		if err := ready(); err != nil {
			return "cluster " + cluster + " is not ready: " + err.Error()
		}
		return ""
	}); err != nil {
		return 0, err
	}
	took := time.Since(started)
	note, err := inside.CoreV1().ConfigMaps(metav1.NamespaceDefault).Get(ctx, "note", metav1.GetOptions{})
	if err != nil || note.Data["from"] != "before" {
		return 0, fmt.Errorf("the object made in the cluster is lost: %w", err)
	}
	return took, nil
}

func (w *testEnv) setPower(ctx context.Context, cluster string, power hivev1.PowerState) error {
	cd := &hivev1.ClusterDeployment{ObjectMeta: metav1.ObjectMeta{Namespace: cluster, Name: cluster}}
	if err := mergePatch(ctx, w.user, cd, map[string]any{"spec": map[string]any{"powerState": power}}); err != nil {
		return fmt.Errorf("changing the power state of cluster %s: %w", cluster, err)
	}
	return nil
}
