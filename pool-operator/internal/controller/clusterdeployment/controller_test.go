// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package clusterdeployment_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-io/muster/apis/faultinject"
	hivev1 "github.com/muster-io/muster/apis/hive/v1"
	"github.com/muster-io/muster/pool-operator/internal/controller/clusterdeployment"
	"github.com/muster-io/muster/pool-operator/internal/provision"
)

func TestAClusterIsInstalled(t *testing.T) {
	s := newShell(t)
	s.backend.Slow = true
	s.run()
	assert.Equal(t, "False/Provisioning", said(s.cluster(), hivev1.ClusterDeploymentProvisioned))
	assert.False(t, s.cluster().Spec.Installed)
	assert.Equal(t, hivev1.PlatformHosted, s.cluster().Labels[hivev1.LabelClusterPlatform], "the column PLATFORM is not blank")
	assert.Empty(t, s.secrets(), "there is nothing to publish yet")

	s.backend.Finish(s.ref())
	s.run()
	cluster := s.cluster()
	assert.True(t, cluster.Spec.Installed)
	assert.Equal(t, hivev1.PowerStateRunning, cluster.Status.PowerState)
	assert.Equal(t, "True/Running", said(cluster, hivev1.ClusterDeploymentReady))
	assert.NotEmpty(t, cluster.Status.APIURL)
	assert.NotNil(t, cluster.Status.InstalledTimestamp)
	assert.Equal(t, "1.36.3", *cluster.Status.InstallVersion)
	assert.Equal(t, "1.36.3", cluster.Labels[hivev1.LabelClusterVersion])
	s.requireOwnSecrets()
	assert.Equal(t, []string{"patch", "apply status", "apply", "apply", "apply", "patch", "apply status"}, s.writes.log,
		"finalizer, status; three Secrets, spec, status")

	s.run()
	assert.Len(t, s.writes.log, 7, "a pass without news writes nothing")
}

func TestAClusterThatShouldHibernateIsInstalledFirst(t *testing.T) {
	s := newShell(t, asleep)
	s.run()
	cluster := s.cluster()
	assert.True(t, cluster.Spec.Installed)
	assert.Equal(t, hivev1.PowerStateHibernating, cluster.Status.PowerState)
	assert.Equal(t, "True/Hibernating", said(cluster, hivev1.ClusterDeploymentHibernating))
	s.requireOwnSecrets()
	assert.Equal(t, 1, s.backend.Starts(s.ref()))
}

func TestPowerFollowsTheSpecWithTwoWritesAtMost(t *testing.T) {
	s := newShell(t)
	s.run()
	s.backend.Slow = true
	for range 3 {
		s.writes.log = nil
		s.edit(asleep)
		s.run()
		assert.Equal(t, hivev1.PowerStateStopping, s.cluster().Status.PowerState)
		s.backend.Finish(s.ref())
		s.run()
		assert.Equal(t, hivev1.PowerStateHibernating, s.cluster().Status.PowerState)
		assert.Equal(t, []string{"apply status", "apply status"}, s.writes.log)

		s.writes.log = nil
		s.edit(func(c *hivev1.ClusterDeployment) { c.Spec.PowerState = hivev1.PowerStateRunning })
		s.run()
		assert.Equal(t, hivev1.PowerStateStartingMachines, s.cluster().Status.PowerState)
		s.backend.Finish(s.ref())
		s.run()
		assert.Equal(t, hivev1.PowerStateRunning, s.cluster().Status.PowerState)
		assert.Equal(t, []string{"apply status", "apply status"}, s.writes.log)
	}
	s.requireOwnSecrets()
}

func TestADeadClusterSaysWhyAndComesBack(t *testing.T) {
	s := newShell(t)
	s.run()
	s.backend.Fail(s.ref(), provision.Problem{Reason: provision.ReasonProcessDied, Component: "etcd", Message: "etcd ended with exit code 2"})
	result, err := s.pass()
	require.NoError(t, err)
	assert.Equal(t, time.Second, result.RequeueAfter)
	assert.Equal(t, "True/ProcessExited", said(s.cluster(), hivev1.ClusterDeploymentUnreachable))
	assert.Equal(t, "False/FailedToStartMachines", said(s.cluster(), hivev1.ClusterDeploymentReady))
	assert.Contains(t, hivev1.FindCondition(s.cluster().Status.Conditions, hivev1.ClusterDeploymentReady).Message, "etcd ended with exit code 2")
	s.run()
	assert.Equal(t, "True/Running", said(s.cluster(), hivev1.ClusterDeploymentReady))
	assert.Equal(t, "False/Running", said(s.cluster(), hivev1.ClusterDeploymentUnreachable))
}

func TestARefusalOfTheRuntimeBecomesAConditionAndIsRetried(t *testing.T) {
	for reason, sentence := range map[provision.Reason]string{
		provision.ReasonPortsTaken:    "port 30001 is taken by another program",
		provision.ReasonDiskFull:      "there is no room for the data of etcd",
		provision.ReasonBinaryMissing: "the program etcd is missing",
	} {
		t.Run(string(reason), func(t *testing.T) {
			s := newShell(t)
			s.backend.Refuse(s.ref(), &provision.Problem{Reason: reason, Message: sentence})
			for try := range 3 {
				result, err := s.pass()
				require.NoError(t, err, "it is not an error of the pass, so it does not hold up others")
				require.Positive(t, result.RequeueAfter)
				assert.Equal(t, "True/"+string(reason), said(s.cluster(), hivev1.ClusterDeploymentProvisionFailed))
				assert.Contains(t, hivev1.FindCondition(s.cluster().Status.Conditions, hivev1.ClusterDeploymentProvisioned).Message, sentence)
				assert.Equal(t, try+1, s.cluster().Status.InstallRestarts)
				s.clock.now = s.clock.now.Add(result.RequeueAfter)
			}
			s.backend.Refuse(s.ref(), nil)
			s.run()
			assert.Equal(t, "True/Provisioned", said(s.cluster(), hivev1.ClusterDeploymentProvisioned))
			assert.Equal(t, "False/Provisioned", said(s.cluster(), hivev1.ClusterDeploymentProvisionFailed))
		})
	}
}

// confined runs clusters that it may neither stop nor delete, as in a namespace that allows hosted clusters no more. They go on, and nothing that is observed of them says so.
type confined struct{ clusterdeployment.Runtime }

var errConfined = &provision.Problem{Reason: provision.ReasonRefused, Message: "the namespace does not allow hosted clusters"}

func (confined) Stop(context.Context, provision.ClusterRef) error   { return errConfined }
func (confined) Delete(context.Context, provision.ClusterRef) error { return errConfined }

func TestARefusedStopOrDeletionIsSaidAndRetried(t *testing.T) {
	s := newShell(t)
	s.run()
	allowed := s.reconciler.Runtime
	s.reconciler.Runtime = confined{allowed}
	message := func(conditionType string) string {
		return hivev1.FindCondition(s.cluster().Status.Conditions, conditionType).Message
	}
	s.edit(asleep)
	s.run()
	assert.Equal(t, hivev1.PowerStateFailedToStop, s.cluster().Status.PowerState)
	assert.Equal(t, "False/FailedToStop", said(s.cluster(), hivev1.ClusterDeploymentHibernating))
	assert.Contains(t, message(hivev1.ClusterDeploymentHibernating), errConfined.Message)
	s.edit(func(c *hivev1.ClusterDeployment) { c.Spec.PowerState = hivev1.PowerStateRunning })
	s.run()
	assert.Equal(t, "True/Running", said(s.cluster(), hivev1.ClusterDeploymentReady), "it runs on")
	s.delete()
	s.run()
	assert.Equal(t, "False/DeprovisionFailed", said(s.cluster(), hivev1.ClusterDeploymentProvisioned))
	assert.Contains(t, message(hivev1.ClusterDeploymentProvisioned), errConfined.Message)
	s.reconciler.Runtime = allowed
	s.run()
	assert.True(t, s.gone())
}

// quota is what the API server answers where no more Secrets are allowed.
func quota() error {
	return apierrors.NewForbidden(corev1.Resource("secrets"), "blue", errors.New("exceeded quota: few, requested: secrets=1, used: secrets=5, limited: secrets=5"))
}

func TestARefusedSecretIsSaidAndRetried(t *testing.T) {
	s := newShell(t)
	s.writes.refusal = quota()
	result, err := s.pass()
	require.NoError(t, err, "it is not an error of the pass: the status is written")
	require.Positive(t, result.RequeueAfter)
	assert.Equal(t, "True/Refused", said(s.cluster(), hivev1.ClusterDeploymentProvisionFailed))
	assert.Contains(t, hivev1.FindCondition(s.cluster().Status.Conditions, hivev1.ClusterDeploymentProvisioned).Message, "exceeded quota")
	assert.Zero(t, s.cluster().Status.InstallRestarts, "the cluster itself came up")
	s.writes.refusal = nil
	s.run()
	assert.Equal(t, "True/Running", said(s.cluster(), hivev1.ClusterDeploymentReady))
	s.requireOwnSecrets()
}

func TestARefusedSecretDoesNotHoldUpPower(t *testing.T) {
	s := newShell(t)
	s.run()
	require.NoError(t, s.client.Delete(t.Context(), &s.secrets()[0]))
	s.writes.refusal = quota()
	ready := func() string {
		return hivev1.FindCondition(s.cluster().Status.Conditions, hivev1.ClusterDeploymentReady).Message
	}
	s.run()
	assert.Equal(t, "True/Running", said(s.cluster(), hivev1.ClusterDeploymentReady))
	assert.Contains(t, ready(), "exceeded quota")
	s.edit(asleep)
	s.run()
	assert.Equal(t, hivev1.PowerStateHibernating, s.cluster().Status.PowerState)
	assert.Contains(t, ready(), "exceeded quota")
	result, err := s.pass()
	require.NoError(t, err)
	require.Positive(t, result.RequeueAfter, "the Secret is tried again while the cluster sleeps")
	s.edit(func(c *hivev1.ClusterDeployment) { c.Spec.PowerState = hivev1.PowerStateRunning })
	s.run()
	assert.Equal(t, hivev1.PowerStateRunning, s.cluster().Status.PowerState)
	s.writes.refusal = nil
	s.run()
	assert.NotContains(t, ready(), "exceeded quota")
	s.requireOwnSecrets()
}

func TestInstallationEndsWhenItsAttemptsAreUsed(t *testing.T) {
	s := newShell(t, func(c *hivev1.ClusterDeployment) { c.Spec.InstallAttemptsLimit = new(int32(2)) })
	s.backend.Refuse(s.ref(), &provision.Problem{Reason: provision.ReasonDiskFull, Message: "there is no room"})
	s.run()
	assert.Equal(t, "True/InstallAttemptsLimitReached", said(s.cluster(), hivev1.ClusterDeploymentProvisionStopped))
	s.backend.Refuse(s.ref(), nil)
	s.clock.now = s.clock.now.Add(time.Hour)
	s.restart()
	s.run()
	assert.Zero(t, s.backend.Starts(s.ref()))
}

// The API server refuses a longer one, and its recorder drops it.
func TestAnEventIsNoLongerThanItMayBe(t *testing.T) {
	s := newShell(t, func(c *hivev1.ClusterDeployment) { c.Spec.InstallAttemptsLimit = new(int32(1)) })
	recorder := events.NewFakeRecorder(1000)
	s.reconciler = clusterdeployment.New(clusterdeployment.Deps{
		Client: s.client, Metadata: s.client, Live: s.client, MachinePools: s.client, Runtime: s.backend.Open(), Recorder: recorder, Clock: s.clock, Metrics: s.metrics,
	})
	s.backend.Refuse(s.ref(), &provision.Problem{Reason: provision.ReasonRefused, Message: strings.Repeat("é", 1000)})
	s.run()
	const begin = "Warning InstallAttemptsLimitReached "
	for {
		select {
		case event := <-recorder.Events:
			if rest, found := strings.CutPrefix(event, begin); found {
				assert.LessOrEqual(t, len(rest), 1024)
				assert.True(t, strings.HasSuffix(rest, "é…"), rest)
				return
			}
		default:
			t.Fatal("it has no event")
		}
	}
}

func TestDeletionLeavesNothing(t *testing.T) {
	s := newShell(t)
	s.run()
	s.backend.Slow = true
	s.delete()
	s.run()
	assert.Equal(t, "False/Deprovisioning", said(s.cluster(), hivev1.ClusterDeploymentProvisioned))
	s.backend.Finish(s.ref())
	s.run()
	assert.True(t, s.gone())
	assert.False(t, s.backend.Has(s.ref()))
}

func TestAnInstalledClusterIsNeverMadeAnew(t *testing.T) {
	s := newShell(t)
	s.run()
	s.backend.Lose(s.ref())
	s.run()
	assert.Equal(t, "True/DataMissing", said(s.cluster(), hivev1.ClusterDeploymentUnreachable))
	assert.False(t, s.backend.Has(s.ref()))
}

// A restored ClusterDeployment has another UID. Its former data is neither used nor removed; that of a namesake, which has another ID, is removed.
func TestOnlyTheDataOfARestoredClusterIsKept(t *testing.T) {
	for name, test := range map[string]struct {
		id   string
		kept bool
	}{"restored": {"", true}, "namesake": {"another", false}} {
		t.Run(name, func(t *testing.T) {
			s := newShell(t)
			s.run()
			former, restored := s.ref(), s.cluster().DeepCopy()
			s.edit(func(c *hivev1.ClusterDeployment) { c.Finalizers = nil })
			s.delete()
			require.True(t, s.gone())
			restored.UID, restored.ResourceVersion = "22222222-0000-4000-8000-000000000000", ""
			if test.id != "" {
				restored.Spec.ClusterMetadata.ClusterID = test.id
			}
			require.NoError(t, s.client.Create(t.Context(), restored))
			s.uid = restored.UID
			s.restart()
			require.NoError(t, clusterdeployment.RemoveOrphans(t.Context(), s.reconciler))
			s.run()
			assert.Equal(t, test.kept, s.backend.Has(former))
			assert.False(t, s.backend.Has(s.ref()), "nothing is started")
			condition := hivev1.FindCondition(s.cluster().Status.Conditions, hivev1.ClusterDeploymentUnreachable)
			assert.Equal(t, hivev1.ReasonDataMissing, condition.Reason)
			assert.Equal(t, test.kept, strings.Contains(condition.Message, string(former.UID)), condition.Message)

			s.delete()
			s.run()
			s.run()
			assert.True(t, s.gone())
			assert.False(t, s.backend.Has(former), "the data goes with the cluster")
		})
	}
}

// unserved is an API server that does not serve a kind for a while, and answers 404 for it.
type unserved struct{ client.Reader }

func (unserved) Get(_ context.Context, key client.ObjectKey, _ client.Object, _ ...client.GetOption) error {
	resource := schema.GroupResource{Group: hivev1.GroupVersion.Group, Resource: "clusterdeployments"}
	return faultinject.NotServed(resource)
}

func TestAClusterStaysWhileItsKindIsNotServed(t *testing.T) {
	s := newShell(t)
	s.run()
	d := clusterdeployment.Deps{
		Client: s.client, Metadata: s.client, Live: unserved{}, MachinePools: s.client, Runtime: s.backend.Open(), Recorder: events.NewFakeRecorder(10), Clock: s.clock, Metrics: s.metrics,
	}
	require.Error(t, clusterdeployment.RemoveOrphans(t.Context(), clusterdeployment.New(d)))
	assert.True(t, s.backend.Has(s.ref()))
}

func TestAPausedClusterIsLeftAlone(t *testing.T) {
	s := newShell(t, func(c *hivev1.ClusterDeployment) {
		c.Annotations = map[string]string{hivev1.AnnotationReconcilePause: "true"}
	})
	s.run()
	assert.Empty(t, s.writes.log)
	assert.False(t, s.backend.Has(s.ref()))
}

func TestAPausedClusterRunsOnAfterItsOperator(t *testing.T) {
	for _, pause := range []string{hivev1.AnnotationPowerStatePause, hivev1.AnnotationReconcilePause} {
		t.Run(pause, func(t *testing.T) {
			s := newShell(t)
			s.run()
			s.edit(func(c *hivev1.ClusterDeployment) { c.Annotations = map[string]string{pause: "true"} })
			s.run()
			s.backend.Set(s.ref(), provision.StateStopped, nil) // processes end with their operator
			s.restart()
			s.run()
			assert.Equal(t, 2, s.backend.Starts(s.ref()))

			require.NoError(t, s.backend.Open().Stop(t.Context(), s.ref()))
			s.restart()
			s.run()
			assert.Equal(t, 2, s.backend.Starts(s.ref()), "what was stopped stays so")
		})
	}
}

func TestLostCredentialsComeBackUnchanged(t *testing.T) {
	s := newShell(t)
	s.run()
	before := s.secrets()
	for i := range before {
		require.NoError(t, s.client.Delete(t.Context(), &before[i]))
		s.run()
	}
	s.requireOwnSecrets()
}

func TestOfAClusterWhoseObjectVanishedNothingIsLeft(t *testing.T) {
	s := newShell(t)
	s.run()
	s.edit(func(c *hivev1.ClusterDeployment) { c.Finalizers = nil })
	s.delete()
	require.True(t, s.gone())
	s.run()
	assert.False(t, s.backend.Has(s.ref()))
}

// TestACrashAtAnyWriteIsMadeGood runs a whole life, with the operator dying at the n-th write, before or after it took effect, for every n.
func TestACrashAtAnyWriteIsMadeGood(t *testing.T) {
	crashAtEveryWrite(t, func(t *testing.T) *shell { return newShell(t, asleep) })
}

func crashAtEveryWrite(t *testing.T, begin func(*testing.T) *shell) {
	t.Helper()
	undisturbed := begin(t)
	undisturbed.life()
	total := len(undisturbed.writes.log)
	require.Greater(t, total, 8)
	for n := 1; n <= total; n++ {
		for _, after := range []bool{false, true} {
			t.Run(fmt.Sprintf("write %d of %d, after it: %t", n, total, after), func(t *testing.T) {
				s := begin(t)
				s.writes.failAt, s.writes.after = n, after
				s.life()
			})
		}
	}
}

// life installs a cluster that should hibernate, resumes it, puts it to sleep and deletes it.
func (s *shell) life() {
	s.Helper()
	s.run()
	require.Equal(s, hivev1.PowerStateHibernating, s.cluster().Status.PowerState)
	s.requireOwnSecrets()
	first := s.cluster().Spec.ClusterMetadata
	s.edit(func(c *hivev1.ClusterDeployment) { c.Spec.PowerState = hivev1.PowerStateRunning })
	s.run()
	require.Equal(s, hivev1.PowerStateRunning, s.cluster().Status.PowerState)
	require.Equal(s, first, s.cluster().Spec.ClusterMetadata)
	s.edit(asleep)
	s.run()
	require.Equal(s, hivev1.PowerStateHibernating, s.cluster().Status.PowerState)
	require.Equal(s, 2, s.backend.Starts(s.ref()), "once to install, once to resume")
	s.requireOwnSecrets()
	s.delete()
	s.run()
	require.True(s, s.gone())
	require.False(s, s.backend.Has(s.ref()))
}

func TestActionsAreCounted(t *testing.T) {
	s := newShell(t)
	s.backend.Slow = true
	s.run()
	s.clock.now = s.clock.now.Add(4 * time.Second)
	s.backend.Finish(s.ref())
	s.run()
	s.backend.Slow = false
	s.edit(asleep)
	s.run()
	s.clock.now = s.clock.now.Add(time.Hour)
	s.backend.Slow = true
	s.edit(func(c *hivev1.ClusterDeployment) { c.Spec.PowerState = hivev1.PowerStateRunning })
	s.run()
	s.clock.now = s.clock.now.Add(2 * time.Second)
	s.backend.Finish(s.ref())
	s.run()
	require.NoError(t, testutil.CollectAndCompare(s.metrics, strings.NewReader(`
# HELP pool_operator_hosted_actions_total Actions on hosted clusters, by what was done, what it was for, and whether it succeeded (success or failure).
# TYPE pool_operator_hosted_actions_total counter
pool_operator_hosted_actions_total{action="AddFinalizer",outcome="success",why="New"} 1
pool_operator_hosted_actions_total{action="PublishAccess",outcome="success",why="Installed"} 1
pool_operator_hosted_actions_total{action="RecordInstalled",outcome="success",why="Installed"} 1
pool_operator_hosted_actions_total{action="Start",outcome="success",why="New"} 1
pool_operator_hosted_actions_total{action="Start",outcome="success",why="Resume"} 1
pool_operator_hosted_actions_total{action="Stop",outcome="success",why="Hibernate"} 1
`), "pool_operator_hosted_actions_total"))
	require.NoError(t, testutil.CollectAndCompare(s.metrics, strings.NewReader(`
# HELP pool_operator_hosted_ready_seconds Seconds until a hosted cluster answered: after its installation began (install), or after it stopped being ready or hibernating (resume).
# TYPE pool_operator_hosted_ready_seconds histogram
`+buckets("install", 4)+buckets("resume", 2)), "pool_operator_hosted_ready_seconds"))
}

// buckets are those of a histogram with one value.
func buckets(after string, value float64) string {
	text := ""
	for _, bound := range []float64{1, 2, 3, 5, 8, 13, 20, 30, 60, 120, 300, 600} {
		count := 0
		if value <= bound {
			count = 1
		}
		text += fmt.Sprintf("pool_operator_hosted_ready_seconds_bucket{after=%q,le=\"%v\"} %d\n", after, bound, count)
	}
	return text + fmt.Sprintf("pool_operator_hosted_ready_seconds_bucket{after=%q,le=\"+Inf\"} 1\npool_operator_hosted_ready_seconds_sum{after=%q} %v\npool_operator_hosted_ready_seconds_count{after=%q} 1\n",
		after, after, value, after)
}

func TestRenewedCredentialsAreHandedOut(t *testing.T) {
	s := newShell(t)
	s.run()
	name := s.cluster().Spec.ClusterMetadata.AdminKubeconfigSecretRef.Name
	handedOut := func() (string, string) {
		secret := &corev1.Secret{}
		require.NoError(t, s.client.Get(t.Context(), client.ObjectKey{Namespace: s.key.Namespace, Name: name}, secret))
		return string(secret.Data[hivev1.SecretKeyKubeconfig]), secret.Annotations[clusterdeployment.AccessAnnotation]
	}
	first, id := handedOut()
	require.NotEmpty(t, id)
	s.backend.Outdate(s.ref())
	s.run()
	second, renewed := handedOut()
	require.NotEqual(t, first, second, "the Secret has the new kubeconfig")
	require.NotEqual(t, id, renewed)
	require.Equal(t, hivev1.PowerStateRunning, s.cluster().Status.PowerState, "and the cluster went on running")
}

func TestARuntimeIsToldOfThePullSecret(t *testing.T) {
	cluster := &hivev1.ClusterDeployment{Spec: hivev1.ClusterDeploymentSpec{ClusterName: "blue"}}
	assert.Empty(t, clusterdeployment.SpecOf(cluster).PullSecret)
	cluster.Spec.PullSecretRef = &hivev1.LocalObjectReference{Name: "blue-pull-secret"}
	assert.Equal(t, "blue-pull-secret", clusterdeployment.SpecOf(cluster).PullSecret)
}
