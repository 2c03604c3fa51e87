// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package v1

import "strconv"

// Labels.
const (
	// LabelClusterPoolNamespace on a ClusterDeployment or a cluster's namespace: namespace of its pool.
	LabelClusterPoolNamespace = "hive.openshift.io/clusterpool-namespace"
	// LabelClusterPoolName on a ClusterDeployment: name of its pool.
	LabelClusterPoolName = "hive.openshift.io/clusterpool-name"
	// LabelNamespaceClusterPoolName on a cluster's namespace: name of its pool.
	LabelNamespaceClusterPoolName = "hive.openshift.io/cluster-pool-name"
	// LabelNamespaceClusterPoolNamespace on a cluster's namespace: namespace of its pool, because a pool's name alone does not identify it.
	LabelNamespaceClusterPoolNamespace = "hive.openshift.io/cluster-pool-namespace"
	// LabelClusterPlatform on a ClusterDeployment: the name of its platform, see Platform.Name.
	LabelClusterPlatform = "hive.openshift.io/cluster-platform"
	// LabelClusterRegion on a ClusterDeployment: the region of its platform.
	LabelClusterRegion = "hive.openshift.io/cluster-region"
	// LabelClusterVersion on a ClusterDeployment: the version of the cluster.
	LabelClusterVersion = "hive.openshift.io/version"
	// LabelClusterType on a ClusterDeployment: a type that its owner gives it.
	LabelClusterType = "hive.openshift.io/cluster-type"
	// LabelResumeSkipsClusterOperators on a ClusterDeployment, "true": the cluster counts as resumed without waiting for its cluster operators.
	LabelResumeSkipsClusterOperators = "hive.openshift.io/resume-skips-cluster-operators"
	// LabelDisableCreationCheck on a ClusterDeployment, "true": it may be created with a claim in it, as a restore from backup does.
	LabelDisableCreationCheck = "hive.openshift.io/disable-creation-webhook-for-dr"
)

// Annotations.
const (
	// AnnotationClusterPoolSpecHash on a ClusterDeployment: the version of the pool that it was made from. On its namespace: the one that its creation began with.
	AnnotationClusterPoolSpecHash = "hive.openshift.io/cluster-pool-spec-hash"
	// AnnotationRemoveFromPool on a ClusterDeployment, "true": the pool deletes the cluster.
	AnnotationRemoveFromPool = "hive.openshift.io/remove-cluster-from-pool"
	// AnnotationRemoveFromPoolOld is the earlier spelling of AnnotationRemoveFromPool; it is still obeyed.
	AnnotationRemoveFromPoolOld = "hive.openshift.io/remove-claimed-cluster-from-pool"
	// AnnotationProtectedDelete on a ClusterDeployment, "true": deleting it is refused.
	AnnotationProtectedDelete = "hive.openshift.io/protected-delete"
	// AnnotationReconcilePause on any object, "true": no controller acts on it.
	AnnotationReconcilePause = "hive.openshift.io/reconcile-pause"
	// AnnotationPowerStatePause on a ClusterDeployment, "true": its power is neither observed nor changed.
	AnnotationPowerStatePause = "hive.openshift.io/powerstate-pause"
	// AnnotationFakeCluster on a ClusterDeployment, "true": there are no machines; power states are reached at once.
	AnnotationFakeCluster = "hive.openshift.io/fake-cluster"
	// AnnotationInfraDisabled on a ClusterDeployment, "true": nothing is created or deleted on its platform.
	AnnotationInfraDisabled = "hive.openshift.io/infra-disabled"
)

// IsTrue reads a boolean of annotations or labels in every form that [strconv.ParseBool] takes: 1, t, T, TRUE, true and True mean true. A value that is no
// boolean is false.
func IsTrue(values map[string]string, key string) bool {
	b, err := strconv.ParseBool(values[key])
	return err == nil && b
}

// Finalizers.
const (
	// FinalizerClusterPool keeps a ClusterPool until its clusters are gone.
	FinalizerClusterPool = "hive.openshift.io/clusters"
	// FinalizerClusterClaim keeps a ClusterClaim until its cluster and its subjects' rights are gone.
	FinalizerClusterClaim = "hive.openshift.io/claim"
	// FinalizerDeprovision keeps a ClusterDeployment until what was installed is gone. It belongs to the installer.
	FinalizerDeprovision = "hive.openshift.io/deprovision"
)

// Names and keys of objects beside a cluster.
const (
	// ClaimOwnerRoleName is the name of the Role and RoleBinding in a cluster's namespace that give a claim's subjects access.
	ClaimOwnerRoleName = "hive-claim-owner"
	// PoolAdminClusterRoleName is the ClusterRole whose bindings in a pool's namespace make their subjects admins of the pools there.
	PoolAdminClusterRoleName = "hive-cluster-pool-admin"
	// PoolAdminRoleBindingName is the name of the RoleBinding in a cluster's namespace that repeats those bindings.
	PoolAdminRoleBindingName = "hive-cluster-pool-admin-binding"

	// SecretKeyKubeconfig is the key of a kubeconfig.
	SecretKeyKubeconfig = "kubeconfig"
	// SecretKeyUsername is the key of a user name.
	SecretKeyUsername = "username"
	// SecretKeyPassword is the key of a password.
	SecretKeyPassword = "password"
	// SecretKeyMetadataJSON is the key of what an installer says about a cluster.
	SecretKeyMetadataJSON = "metadata.json" //nolint:gosec // the name of a key, no credential
	// SecretKeyInstallConfig is the key of an install-config, or of the template of one.
	SecretKeyInstallConfig = "install-config.yaml" //nolint:gosec // the name of a key, no credential
	// SecretKeyDockerConfigJSON is the key of a pull secret.
	SecretKeyDockerConfigJSON = ".dockerconfigjson" //nolint:gosec // the name of a key, no credential
)
