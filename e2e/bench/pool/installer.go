// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package pool

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	hivev1 "github.com/muster-io/muster/apis/hive/v1"
	"github.com/muster-io/muster/e2e/bench"
)

// installers is how many clusters the stand-in works on at a time.
const installers = 10

// installs says who installs clusters.
type installs bool

const (
	standInInstalls installs = true
	// withoutInstaller leaves it to pool-operator.
	withoutInstaller installs = false
)

// installer is a fake that installs clusters and switches them on and off: it only writes what an installer writes, at once.
// It is a client of its own, with its own count of requests.
type installer struct {
	client.Client
	manager manager.Manager
	acts    installs
	counter *bench.Counter

	mu        sync.Mutex
	installed map[types.UID]bool
	power     map[types.UID]hivev1.PowerState
}

func newInstaller(admin *rest.Config, acts installs) (*installer, error) {
	i := &installer{acts: acts, counter: bench.NewCounter(), installed: map[types.UID]bool{}, power: map[types.UID]hivev1.PowerState{}}
	c := rest.CopyConfig(admin)
	c.UserAgent = "bench-installer"
	c.Wrap(i.counter.Wrap)
	scheme, err := newScheme()
	if err != nil {
		return nil, err
	}
	if i.manager, err = ctrl.NewManager(c, ctrl.Options{
		Scheme: scheme, Metrics: metricsserver.Options{BindAddress: "0"}, Controller: config.Controller{SkipNameValidation: new(true)},
	}); err != nil {
		return nil, fmt.Errorf("preparing the stand-in installer: %w", err)
	}
	i.Client = i.manager.GetClient()
	err = ctrl.NewControllerManagedBy(i.manager).Named("installer").For(&hivev1.ClusterDeployment{}).
		WithOptions(controller.Options{MaxConcurrentReconciles: installers}).Complete(i)
	if err != nil {
		return nil, fmt.Errorf("preparing the stand-in installer: %w", err)
	}
	return i, nil
}

// Reconcile installs a cluster, or gives it the power state that it should have.
func (i *installer) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	cd := &hivev1.ClusterDeployment{}
	if err := i.Get(ctx, request.NamespacedName, cd, client.UnsafeDisableDeepCopy); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !cd.DeletionTimestamp.IsZero() || i.acts == withoutInstaller {
		return ctrl.Result{}, nil
	}
	wanted := cd.Spec.PowerState
	if wanted == "" {
		wanted = hivev1.PowerStateRunning
	}
	i.mu.Lock()
	installed, power := i.installed[cd.UID], i.power[cd.UID]
	i.mu.Unlock()
	if !installed {
		if err := i.install(ctx, cd); err != nil {
			return ctrl.Result{}, client.IgnoreNotFound(err)
		}
	}
	if power == wanted {
		return ctrl.Result{}, nil
	}
	if err := i.patch(ctx, i.Status(), cd, map[string]any{"status": statusOf(cd.Namespace, wanted, time.Now())}); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	i.mu.Lock()
	i.installed[cd.UID], i.power[cd.UID] = true, wanted
	i.mu.Unlock()
	return ctrl.Result{}, nil
}

// install writes what an installer leaves: the Secrets that lead into the cluster, and in the spec that it is installed. The status follows in the same pass.
func (i *installer) install(ctx context.Context, cd *hivev1.ClusterDeployment) error {
	for n := range secretsPerInstallation {
		if err := client.IgnoreAlreadyExists(i.Create(ctx, secretOf(cd.Namespace, n))); err != nil {
			return err
		}
	}
	return i.patch(ctx, i.Client, cd, installedPatch(cd.Namespace))
}

// touch changes the status of a cluster in a way that means nothing to its pool.
func (i *installer) touch(ctx context.Context, cd *hivev1.ClusterDeployment) error {
	return i.patch(ctx, i.Status(), cd, map[string]any{"status": map[string]any{"webConsoleURL": "https://console." + cd.Namespace + ".example.com"}})
}

func (i *installer) patch(ctx context.Context, writer any, cd *hivev1.ClusterDeployment, content map[string]any) error {
	return mergePatch(ctx, writer, &hivev1.ClusterDeployment{ObjectMeta: metav1.ObjectMeta{Namespace: cd.Namespace, Name: cd.Name}}, content)
}

// mergePatch writes with a client, or with the part of it that writes a status.
func mergePatch(ctx context.Context, writer any, object client.Object, content map[string]any) error {
	raw, err := json.Marshal(content)
	if err != nil {
		return err
	}
	patch := client.RawPatch(types.MergePatchType, raw)
	if status, ok := writer.(client.SubResourceWriter); ok {
		return status.Patch(ctx, object, patch)
	}
	return writer.(client.Writer).Patch(ctx, object, patch)
}

// Secrets of an installer.
const secretsPerInstallation = 3

// secretOf returns the n-th of the Secrets that lead into a cluster.
func secretOf(cluster string, n int) *corev1.Secret {
	content := []map[string][]byte{
		{hivev1.SecretKeyKubeconfig: make([]byte, 6<<10)},
		{hivev1.SecretKeyUsername: []byte("admin"), hivev1.SecretKeyPassword: []byte("not a password")},
		{hivev1.SecretKeyMetadataJSON: []byte(`{"clusterName":"` + cluster + `"}`)},
	}
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: cluster, Name: secretName(cluster, n)}, Data: content[n%secretsPerInstallation]}
}

func secretName(cluster string, n int) string {
	return fmt.Sprintf("%s-%s", cluster, []string{"admin-kubeconfig", "admin-password", "metadata-json"}[n])
}

func installedPatch(cluster string) map[string]any {
	return map[string]any{"spec": map[string]any{"installed": true, "clusterMetadata": map[string]any{
		"clusterID": cluster, "infraID": cluster,
		"adminKubeconfigSecretRef": map[string]any{"name": secretName(cluster, 0)},
		"adminPasswordSecretRef":   map[string]any{"name": secretName(cluster, 1)},
		"metadataJSONSecretRef":    map[string]any{"name": secretName(cluster, 2)},
	}}}
}

// statusOf is the status of an installed cluster.
func statusOf(cluster string, power hivev1.PowerState, now time.Time) map[string]any {
	ready, hibernating := corev1.ConditionTrue, corev1.ConditionFalse
	readyReason, hibernatingReason := hivev1.ReasonRunning, hivev1.ReasonResumingOrRunning
	if power == hivev1.PowerStateHibernating {
		ready, hibernating = corev1.ConditionFalse, corev1.ConditionTrue
		readyReason, hibernatingReason = hivev1.ReasonStoppingOrHibernating, string(hivev1.PowerStateHibernating)
	}
	at := now.UTC().Format(time.RFC3339)
	condition := func(kind string, status corev1.ConditionStatus, reason string) map[string]any {
		return map[string]any{"type": kind, "status": status, "reason": reason, "message": "written by a stand-in", "lastProbeTime": at, "lastTransitionTime": at}
	}
	return map[string]any{
		"powerState": power, "apiURL": "https://api." + cluster + ".example.com:6443", "installedTimestamp": at,
		"conditions": []any{
			condition(hivev1.ClusterDeploymentProvisioned, corev1.ConditionTrue, "Provisioned"),
			condition(hivev1.ClusterDeploymentReady, ready, readyReason),
			condition(hivev1.ClusterDeploymentHibernating, hibernating, hibernatingReason),
		},
	}
}
