// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package contract

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	hivev1 "github.com/muster-io/muster/apis/hive/v1"
)

// Station is how far an installer is with one cluster.
type Station string

// The stations that every installer can be brought to.
const (
	// Blocked: something that it needs is missing.
	Blocked Station = "Blocked"
	// Working: it has what it needs and installs.
	Working Station = "Working"
	// Retrying: an attempt failed and another one follows.
	Retrying Station = "Retrying"
	// Done: the cluster is installed, and the object says how to get into it.
	Done Station = "Done"
	// GivenUp: the last attempt failed and no other follows.
	GivenUp Station = "GivenUp"
)

// Installer is how the cases get at one kind of install object, while the operator and the installer run.
type Installer struct {
	// Client is an administrator's.
	Client client.Client
	// Kind of the install object; the name is filled in by the cases.
	Kind hivev1.ClusterInstallLocalReference
	// Platform of the ClusterDeployments.
	Platform hivev1.Platform
	// Namespace returns a new namespace.
	Namespace func(t *testing.T) string
	// Create makes the install object for the ClusterDeployment of the same name.
	Create func(ctx context.Context, key client.ObjectKey) error
	// Reach brings the installer to a station.
	Reach func(ctx context.Context, key client.ObjectKey, station Station) error
	// Timeout is how long news may take to reach the ClusterDeployment.
	Timeout time.Duration
}

// RunInstaller runs the cases of the install contract: what an installer says arrives on the ClusterDeployment.
func RunInstaller(t *testing.T, i Installer) {
	t.Helper()
	t.Run("a cluster is installed, past all that can go wrong", func(t *testing.T) {
		s := newInstallation(t, i)
		s.says(hivev1.ClusterDeploymentRequirementsMet, "False/ClusterInstallNotFound")
		require.NoError(t, i.Create(t.Context(), s.key))
		s.reach(Blocked)
		s.saysStatus(hivev1.ClusterDeploymentInstallRequirementsMet, metav1.ConditionFalse)
		s.saysStatus(hivev1.ClusterDeploymentRequirementsMet, metav1.ConditionFalse)
		s.reach(Working)
		s.says(hivev1.ClusterDeploymentRequirementsMet, "True/AllRequirementsMet")
		s.says(hivev1.ClusterDeploymentProvisioned, "False/Provisioning")
		s.reach(Retrying)
		s.saysStatus(hivev1.ClusterDeploymentProvisionFailed, metav1.ConditionTrue)
		s.says(hivev1.ClusterDeploymentProvisionStopped, "False/ProvisionNotStopped")
		s.reach(Done)
		s.says(hivev1.ClusterDeploymentProvisioned, "True/Provisioned")
		s.saysStatus(hivev1.ClusterDeploymentInstallCompleted, metav1.ConditionTrue)
		cluster := s.cluster()
		require.True(t, cluster.Spec.Installed)
		require.NotNil(t, cluster.Spec.ClusterMetadata)
		require.NotEmpty(t, cluster.Spec.ClusterMetadata.ClusterID)
		require.NotEmpty(t, cluster.Spec.ClusterMetadata.InfraID)
		require.NotEmpty(t, cluster.Spec.ClusterMetadata.AdminKubeconfigSecretRef.Name)
		require.NotNil(t, cluster.Status.InstalledTimestamp)
		require.Equal(t, hivev1.PowerStateRunning, cluster.Status.PowerState)
	})
	t.Run("an installer that gives up is said to have", func(t *testing.T) {
		s := newInstallation(t, i)
		require.NoError(t, i.Create(t.Context(), s.key))
		s.reach(Working)
		s.reach(GivenUp)
		s.saysStatus(hivev1.ClusterDeploymentProvisionStopped, metav1.ConditionTrue)
		s.says(hivev1.ClusterDeploymentProvisioned, "False/ProvisionStopped")
		require.False(t, s.cluster().Spec.Installed)
	})
}

// installation is one cluster of one case.
type installation struct {
	*testing.T
	i   Installer
	key client.ObjectKey
}

func newInstallation(t *testing.T, i Installer) *installation {
	t.Helper()
	s := &installation{T: t, i: i, key: client.ObjectKey{Namespace: i.Namespace(t), Name: "blue"}}
	ref := i.Kind
	ref.Name = s.key.Name
	require.NoError(t, i.Client.Create(t.Context(), &hivev1.ClusterDeployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.key.Namespace, Name: s.key.Name},
		Spec:       hivev1.ClusterDeploymentSpec{ClusterName: "blue", BaseDomain: "example.org", Platform: i.Platform, ClusterInstallRef: &ref},
	}))
	return s
}

func (s *installation) reach(station Station) {
	s.Helper()
	require.NoError(s, s.i.Reach(s.Context(), s.key, station))
}

func (s *installation) cluster() *hivev1.ClusterDeployment {
	s.Helper()
	cluster := &hivev1.ClusterDeployment{}
	require.NoError(s, s.i.Client.Get(s.Context(), s.key, cluster))
	return cluster
}

// says waits until a condition has the status and reason.
func (s *installation) says(conditionType, want string) {
	s.Helper()
	s.await(conditionType, want, func(c hivev1.Condition) bool { return string(c.Status)+"/"+c.Reason == want })
}

// saysStatus waits until a condition has the status, whatever its reason, which is the installer's.
func (s *installation) saysStatus(conditionType string, want metav1.ConditionStatus) {
	s.Helper()
	s.await(conditionType, string(want), func(c hivev1.Condition) bool { return string(c.Status) == string(want) && c.Reason != "" })
}

func (s *installation) await(conditionType, want string, is func(hivev1.Condition) bool) {
	s.Helper()
	require.Eventuallyf(s, func() bool {
		c := hivev1.FindCondition(s.cluster().Status.Conditions, conditionType)
		return c != nil && is(*c)
	}, s.i.Timeout, 20*time.Millisecond, "waiting for %s to be %s", conditionType, want)
}
