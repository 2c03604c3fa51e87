// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package v1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
)

// ClusterDeploymentSpec says what a cluster is like and whether it runs. Fields that other controllers use and that are not modelled here are kept.
// +kubebuilder:pruning:PreserveUnknownFields
// +kubebuilder:validation:XValidation:rule="has(self.clusterPoolRef) == has(oldSelf.clusterPoolRef)",fieldPath=".clusterPoolRef",reason=FieldValueInvalid,message="clusterPoolRef can be neither added nor removed; a cluster belongs to the pool that created it"
// +kubebuilder:validation:XValidation:rule="!(has(oldSelf.installed) && oldSelf.installed) || (has(self.installed) && self.installed)",fieldPath=".installed",reason=FieldValueInvalid,message="installed cannot go back to false; delete the ClusterDeployment and create a new one"
// +kubebuilder:validation:XValidation:rule="has(self.pullSecretRef) == has(oldSelf.pullSecretRef) && (!has(self.pullSecretRef) || self.pullSecretRef == oldSelf.pullSecretRef)",fieldPath=".pullSecretRef",reason=FieldValueInvalid,message="pullSecretRef cannot change; to change the credentials, change the content of the Secret"
// +kubebuilder:validation:XValidation:rule="has(self.provisioning) == has(oldSelf.provisioning)",fieldPath=".provisioning",reason=FieldValueInvalid,message="provisioning cannot change; delete the ClusterDeployment and create a new one"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.installed) || !oldSelf.installed || !has(oldSelf.clusterMetadata) || (has(self.clusterMetadata) && self.clusterMetadata.clusterID == oldSelf.clusterMetadata.clusterID && self.clusterMetadata.infraID == oldSelf.clusterMetadata.infraID && self.clusterMetadata.adminKubeconfigSecretRef == oldSelf.clusterMetadata.adminKubeconfigSecretRef && (!has(oldSelf.clusterMetadata.adminPasswordSecretRef) || (has(self.clusterMetadata.adminPasswordSecretRef) && self.clusterMetadata.adminPasswordSecretRef == oldSelf.clusterMetadata.adminPasswordSecretRef)) && (!has(oldSelf.clusterMetadata.metadataJSONSecretRef) || (has(self.clusterMetadata.metadataJSONSecretRef) && self.clusterMetadata.metadataJSONSecretRef == oldSelf.clusterMetadata.metadataJSONSecretRef)) && (!has(oldSelf.clusterMetadata.nodeAccessSecretRef) || (has(self.clusterMetadata.nodeAccessSecretRef) && self.clusterMetadata.nodeAccessSecretRef == oldSelf.clusterMetadata.nodeAccessSecretRef)) && (!has(oldSelf.clusterMetadata.platform) || has(self.clusterMetadata.platform)))",fieldPath=".clusterMetadata",reason=FieldValueInvalid,message="clusterMetadata cannot change once the cluster is installed; credentials are changed in the Secrets that it names"
type ClusterDeploymentSpec struct {
	// clusterName is the short name of the cluster, used in its domain and in the names of its resources. It cannot change.
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",reason=FieldValueInvalid,message="clusterName cannot change; delete the ClusterDeployment and create a new one"
	// +kubebuilder:validation:MaxLength=253
	// +required
	ClusterName string `json:"clusterName"`

	// baseDomain is the domain below which the cluster has its name. It cannot change.
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",reason=FieldValueInvalid,message="baseDomain cannot change; delete the ClusterDeployment and create a new one"
	// +kubebuilder:validation:MaxLength=253
	// +required
	BaseDomain string `json:"baseDomain"`

	// platform says where and by whom the cluster is installed. It cannot change, but for the selector of machines of agentBareMetal, audit of hosted, additionalAllowedPrincipals of aws.privateLink, discardLocalSsdOnHibernate of gcp, which their installers
	// follow, and infrastructure of vsphere, which its installer adds.
	// +kubebuilder:validation:XValidation:rule="has(self.agentBareMetal) == has(oldSelf.agentBareMetal) && has(self.aws) == has(oldSelf.aws) && has(self.azure) == has(oldSelf.azure) && has(self.baremetal) == has(oldSelf.baremetal) && has(self.gcp) == has(oldSelf.gcp) && has(self.hosted) == has(oldSelf.hosted) && has(self.ibmcloud) == has(oldSelf.ibmcloud) && has(self.none) == has(oldSelf.none) && has(self.nutanix) == has(oldSelf.nutanix) && has(self.openstack) == has(oldSelf.openstack) && has(self.vsphere) == has(oldSelf.vsphere) && (!has(self.hosted) || has(self.hosted.nodes) == has(oldSelf.hosted.nodes) && (!has(self.hosted.nodes) || self.hosted.nodes == oldSelf.hosted.nodes)) && (!has(self.none) || self.none == oldSelf.none)",reason=FieldValueInvalid,message="platform cannot change; delete the ClusterDeployment and create a new one"
	// +required
	Platform Platform `json:"platform"`

	// pullSecretRef names a Secret with the key .dockerconfigjson. It cannot change.
	// +optional
	PullSecretRef *LocalObjectReference `json:"pullSecretRef,omitempty"`

	// preserveOnDelete says that deleting the ClusterDeployment leaves the cluster itself alone.
	// +optional
	PreserveOnDelete bool `json:"preserveOnDelete,omitempty"`

	// controlPlaneConfig says how the cluster's API is reached.
	// +optional
	ControlPlaneConfig *ControlPlaneConfig `json:"controlPlaneConfig,omitempty"`

	// installed says that the cluster has been installed. Written by the installer.
	// +optional
	Installed bool `json:"installed,omitempty"`

	// clusterMetadata says how to get into the installed cluster. Written by the installer; once the cluster is installed, fields can be added and not change.
	// +optional
	ClusterMetadata *ClusterMetadata `json:"clusterMetadata,omitempty"`

	// provisioning says how the cluster is installed, unless clusterInstallRef does. It cannot change.
	// +optional
	Provisioning *Provisioning `json:"provisioning,omitempty"`

	// clusterInstallRef names the object in the cluster's namespace that installs the cluster, see ClusterInstall.
	// +optional
	ClusterInstallRef *ClusterInstallLocalReference `json:"clusterInstallRef,omitempty"`

	// clusterPoolRef names the pool that created the cluster and the claim that has it.
	// +optional
	ClusterPoolRef *ClusterPoolReference `json:"clusterPoolRef,omitempty"`

	// powerState says whether the cluster should be Running or Hibernating. Unset means Running. On unclaimed clusters of a pool, the pool decides.
	// +kubebuilder:validation:Enum="";Running;Hibernating
	// +optional
	PowerState PowerState `json:"powerState,omitempty"`

	// hibernateAfter is how long the cluster runs before it hibernates: counted from the last of installation, claim and resume. Unclaimed clusters of a pool are exempt. A duration such as 8h.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]+([.][0-9]+)?(ns|us|µs|ms|s|m|h))+$')",message="write a duration of hours, minutes and seconds, such as '48h' or '1h30m'; days are not known"
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="!self.matches('[0-9]{6}h|[0-9]{8}m([^s]|$)|[0-9]{10}s|[0-9]{13}ms|[0-9]{16}(us|µs)|[0-9]{19}ns')",message="the duration is too long to be represented; write at most 99999h, 9999999m or 999999999s"
	// +optional
	HibernateAfter *metav1.Duration `json:"hibernateAfter,omitempty"`

	// certificateBundles are certificates for the controller that installs.
	// +kubebuilder:validation:MaxItems=1024
	// +listType=atomic
	// +optional
	CertificateBundles []CertificateBundle `json:"certificateBundles,omitempty"`

	// boundServiceAccountSigningKeySecretRef names a Secret with the key that signs tokens of service accounts, for the controller that installs.
	// +optional
	BoundServiceAccountSigningKeySecretRef *LocalObjectReference `json:"boundServiceAccountSigningKeySecretRef,omitempty"`

	// installAttemptsLimit is how often installation is tried. Unset means no limit.
	// +optional
	InstallAttemptsLimit *int32 `json:"installAttemptsLimit,omitempty"`
}

// PowerState says whether a cluster runs. In spec it is Running or Hibernating, in status also one of the steps between.
// +kubebuilder:validation:MaxLength=253
type PowerState string

// ControlPlaneConfig says how a cluster's API is reached.
// +kubebuilder:pruning:PreserveUnknownFields
type ControlPlaneConfig struct {
	// apiURLOverride is used instead of the URL that the kubeconfig of the cluster names.
	// +kubebuilder:validation:MaxLength=2048
	// +optional
	APIURLOverride string `json:"apiURLOverride,omitempty"`

	// apiServerIPOverride is dialled instead of what the host name in the URL of the API resolves to.
	// +kubebuilder:validation:MaxLength=253
	// +optional
	APIServerIPOverride string `json:"apiServerIPOverride,omitempty"`
}

// ClusterMetadata says how to get into an installed cluster.
// +kubebuilder:pruning:PreserveUnknownFields
type ClusterMetadata struct {
	// clusterID identifies the cluster among all clusters.
	// +kubebuilder:validation:MaxLength=253
	// +required
	ClusterID string `json:"clusterID"`

	// infraID is the name by which the cluster's resources are tagged.
	// +kubebuilder:validation:MaxLength=253
	// +required
	InfraID string `json:"infraID"`

	// adminKubeconfigSecretRef names a Secret with the key kubeconfig.
	// +required
	AdminKubeconfigSecretRef LocalObjectReference `json:"adminKubeconfigSecretRef"`

	// adminPasswordSecretRef names a Secret with the keys username and password.
	// +optional
	AdminPasswordSecretRef *LocalObjectReference `json:"adminPasswordSecretRef,omitempty"`

	// metadataJSONSecretRef names a Secret with the key metadata.json, what the installer says about the cluster.
	// +optional
	MetadataJSONSecretRef *LocalObjectReference `json:"metadataJSONSecretRef,omitempty"`

	// nodeAccessSecretRef names a Secret of type hive.openshift.io/node-access, by which machines join the cluster as nodes. Unset means that the cluster takes none.
	// +optional
	NodeAccessSecretRef *LocalObjectReference `json:"nodeAccessSecretRef,omitempty"`

	// platform is what the installer records about the platform that the cluster is on. Once the cluster is installed, hostedZoneRole of aws, resourceGroupName of azure and networkProjectID
	// of gcp can be set and changed.
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Type=object
	// +optional
	Platform *runtime.RawExtension `json:"platform,omitempty"`
}

// CertificateBundle is a certificate of the cluster for the controller that installs.
// +kubebuilder:pruning:PreserveUnknownFields
type CertificateBundle struct {
	// name by which ingresses and the control plane refer to the bundle.
	// +kubebuilder:validation:MaxLength=253
	// +required
	Name string `json:"name"`

	// certificateSecretRef names the Secret with the certificate and its key.
	// +required
	CertificateSecretRef LocalObjectReference `json:"certificateSecretRef"`
}

// Provisioning says how a cluster is installed.
// +kubebuilder:pruning:PreserveUnknownFields
type Provisioning struct {
	// installConfigSecretRef names a Secret with the key install-config.yaml.
	// +optional
	InstallConfigSecretRef *LocalObjectReference `json:"installConfigSecretRef,omitempty"`

	// sshPrivateKeySecretRef names a Secret with the key that the installer logs in to machines with.
	// +optional
	SSHPrivateKeySecretRef *LocalObjectReference `json:"sshPrivateKeySecretRef,omitempty"`

	// manifestsSecretRef names a Secret with further manifests for the installer.
	// +optional
	ManifestsSecretRef *LocalObjectReference `json:"manifestsSecretRef,omitempty"`

	// releaseImage is the release to install; it wins over imageSetRef.
	// +kubebuilder:validation:MaxLength=1024
	// +optional
	ReleaseImage string `json:"releaseImage,omitempty"`

	// imageSetRef names the ClusterImageSet whose release is installed.
	// +optional
	ImageSetRef *ClusterImageSetReference `json:"imageSetRef,omitempty"`

	// installerEnv are environment variables of the installer.
	// +kubebuilder:validation:MaxItems=1024
	// +listType=atomic
	// +optional
	InstallerEnv []corev1.EnvVar `json:"installerEnv,omitempty"`

	// customizationRef names a ClusterDeploymentCustomization for the controller that installs.
	// +optional
	CustomizationRef *LocalObjectReference `json:"customizationRef,omitempty"`
}

// ClusterInstallLocalReference names an object in the same namespace that follows the install contract, see ClusterInstall.
type ClusterInstallLocalReference struct {
	// group of the install object's kind, such as extensions.hive.openshift.io.
	// +kubebuilder:validation:MaxLength=253
	// +required
	Group string `json:"group"`

	// version of the install object's kind, such as v1beta1.
	// +kubebuilder:validation:MaxLength=63
	// +required
	Version string `json:"version"`

	// kind of the install object, such as AgentClusterInstall.
	// +kubebuilder:validation:MaxLength=63
	// +required
	Kind string `json:"kind"`

	// name of the install object.
	// +kubebuilder:validation:MaxLength=253
	// +required
	Name string `json:"name"`
}

// ClusterPoolReference names the pool that created a cluster and the claim that has it.
// +kubebuilder:validation:XValidation:rule="self.__namespace__ == oldSelf.__namespace__ && self.poolName == oldSelf.poolName",message="namespace and poolName cannot change; a cluster belongs to the pool that created it"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.claimName) || size(oldSelf.claimName) == 0 || (has(self.claimName) && self.claimName == oldSelf.claimName)",fieldPath=".claimName",message="claimName cannot change once it is set; delete the claim to release the cluster"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.claimUID) || size(oldSelf.claimUID) == 0 || !has(self.claimUID) || size(self.claimUID) == 0 || self.claimUID == oldSelf.claimUID",fieldPath=".claimUID",message="claimUID cannot change once it is set; delete the claim to release the cluster"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.claimedTimestamp) || (has(self.claimedTimestamp) && self.claimedTimestamp == oldSelf.claimedTimestamp)",fieldPath=".claimedTimestamp",message="claimedTimestamp cannot change once it is set"
type ClusterPoolReference struct {
	// namespace of the pool and of its claims.
	// +kubebuilder:validation:MaxLength=63
	// +required
	Namespace string `json:"namespace"`

	// poolName is the name of the pool.
	// +kubebuilder:validation:MaxLength=253
	// +required
	PoolName string `json:"poolName"`

	// claimName is the name of the claim that has the cluster. Set once.
	// +kubebuilder:validation:MaxLength=253
	// +optional
	ClaimName string `json:"claimName,omitempty"`

	// claimUID is the UID of the claim that has the cluster, so that a later claim of the same name is not taken for it. Set together with claimName. Clients that do not know the
	// field drop it when they write back what they decoded; the operator then writes it again.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=128
	// +optional
	ClaimUID types.UID `json:"claimUID,omitempty"`

	// claimedTimestamp is when the claim got the cluster. Set once, together with claimName.
	// +optional
	ClaimedTimestamp *metav1.Time `json:"claimedTimestamp,omitempty"`

	// clusterDeploymentCustomization names the ClusterDeploymentCustomization that the controller that installs reserved for this cluster.
	// +optional
	ClusterDeploymentCustomization *LocalObjectReference `json:"clusterDeploymentCustomization,omitempty"`
}

// ClusterDeploymentStatus says how a cluster is. Fields that other controllers write and that are not modelled here are kept.
// +kubebuilder:pruning:PreserveUnknownFields
type ClusterDeploymentStatus struct {
	// conditions say what is and is not as it should be; the reasons are declared with the types.
	// +kubebuilder:validation:MaxItems=256
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []Condition `json:"conditions,omitempty"`

	// powerState is Running, Hibernating, or the step between that the cluster is in.
	// +optional
	PowerState PowerState `json:"powerState,omitempty"`

	// apiURL is where the cluster's API is reached.
	// +kubebuilder:validation:MaxLength=2048
	// +optional
	APIURL string `json:"apiURL,omitempty"`

	// webConsoleURL is where the cluster's web console is reached.
	// +kubebuilder:validation:MaxLength=2048
	// +optional
	WebConsoleURL string `json:"webConsoleURL,omitempty"`

	// installRestarts counts how often installation began again.
	// +optional
	InstallRestarts int `json:"installRestarts,omitempty"`

	// installVersion is the version that was installed.
	// +kubebuilder:validation:MaxLength=253
	// +optional
	InstallVersion *string `json:"installVersion,omitempty"`

	// installStartedTimestamp is when installation began.
	// +optional
	InstallStartedTimestamp *metav1.Time `json:"installStartedTimestamp,omitempty"`

	// installedTimestamp is when the cluster was first seen to be installed.
	// +optional
	InstalledTimestamp *metav1.Time `json:"installedTimestamp,omitempty"`

	// claimedTimestamp repeats spec.clusterPoolRef.claimedTimestamp. Set once.
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="claimedTimestamp cannot change once it is set"
	// +optional
	ClaimedTimestamp *metav1.Time `json:"claimedTimestamp,omitempty"`
}

// ClusterDeployment is one cluster: what it should be like, whether it should run, and how it is. It lives in a namespace of its own, with its credentials.
// +genclient
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:metadata:labels="muster.io/crds=clusters"
// +kubebuilder:resource:path=clusterdeployments,scope=Namespaced,shortName=cd,categories=muster
// +kubebuilder:printcolumn:name="InfraID",type=string,JSONPath=`.spec.clusterMetadata.infraID`,description="Name by which the cluster's resources are tagged"
// +kubebuilder:printcolumn:name="Platform",type=string,JSONPath=`.metadata.labels.hive\.openshift\.io/cluster-platform`,description="Platform of the cluster"
// +kubebuilder:printcolumn:name="Region",type=string,JSONPath=`.metadata.labels.hive\.openshift\.io/cluster-region`,description="Region of the cluster"
// +kubebuilder:printcolumn:name="Version",type=string,JSONPath=`.metadata.labels.hive\.openshift\.io/version`,description="Version of the cluster"
// +kubebuilder:printcolumn:name="ClusterType",type=string,JSONPath=`.metadata.labels.hive\.openshift\.io/cluster-type`,description="Type of the cluster, set by its owner"
// +kubebuilder:printcolumn:name="ProvisionStatus",type=string,JSONPath=`.status.conditions[?(@.type=='Provisioned')].reason`,description="Whether the cluster is installed, and if not why"
// +kubebuilder:printcolumn:name="PowerState",type=string,JSONPath=`.status.powerState`,description="Whether the cluster runs"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`,description="Time since creation"
// +kubebuilder:printcolumn:name="Pool",type=string,priority=1,JSONPath=`.spec.clusterPoolRef.poolName`,description="Pool that created the cluster"
// +kubebuilder:printcolumn:name="Claim",type=string,priority=1,JSONPath=`.spec.clusterPoolRef.claimName`,description="Claim that has the cluster"
// +kubebuilder:printcolumn:name="API",type=string,priority=1,JSONPath=`.status.apiURL`,description="Where the cluster's API is reached"
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=='Ready')].message`,description="What keeps the cluster from being usable"
type ClusterDeployment struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec says what the cluster is like and whether it runs.
	// +optional
	Spec ClusterDeploymentSpec `json:"spec,omitempty"`

	// status says how the cluster is.
	// +optional
	Status ClusterDeploymentStatus `json:"status,omitempty"`
}

// ClusterDeploymentList is a list of ClusterDeployments.
// +kubebuilder:object:root=true
type ClusterDeploymentList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	// items are the ClusterDeployments.
	Items []ClusterDeployment `json:"items"`
}
