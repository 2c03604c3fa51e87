// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package v1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// ClusterPoolMachinePool is what a MachinePool of each new cluster is made of.
//
// +kubebuilder:validation:XValidation:rule="has(self.platform.agentBareMetal)",message="write platform.agentBareMetal; clusters of a pool get no other machines",fieldPath=".platform"
// +kubebuilder:validation:XValidation:rule="!has(self.maxReplicas) || self.replicas <= self.maxReplicas",message="replicas must not be more than maxReplicas",fieldPath=".replicas"
type ClusterPoolMachinePool struct {
	// name of the MachinePool within its cluster, such as worker: the MachinePool is named <ClusterDeployment>-<name>.
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",message="write a name of lower-case letters, digits and '-', such as 'worker'"
	// +kubebuilder:validation:MaxLength=54
	// +required
	Name string `json:"name"`

	// replicas is how many machines each cluster gets.
	// +kubebuilder:validation:Minimum=0
	// +required
	Replicas int64 `json:"replicas"`

	// maxReplicas is the most machines that each cluster may be scaled to, such as by a claim's subjects. Unset means no limit.
	// +kubebuilder:validation:Minimum=0
	// +optional
	MaxReplicas *int64 `json:"maxReplicas,omitempty"`

	// labels are put on the nodes when they join.
	// +kubebuilder:validation:MaxProperties=256
	// +optional
	Labels map[string]string `json:"labels,omitempty"`

	// taints are put on the nodes when they join.
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:XValidation:rule="self.all(t, t.effect in ['NoSchedule', 'PreferNoSchedule', 'NoExecute'])",message="write the effect of a taint as NoSchedule, PreferNoSchedule or NoExecute"
	// +listType=atomic
	// +optional
	Taints []corev1.Taint `json:"taints,omitempty"`

	// platform says which machines: its member is agentBareMetal. Agents are looked for in the namespace of the pool, unless agentNamespace says otherwise.
	// +required
	Platform MachinePoolPlatform `json:"platform"`
}

// ClusterPoolSpec says how many clusters stand ready and what they are like.
//
// +kubebuilder:validation:XValidation:rule="!has(self.machinePools) || size(self.machinePools) == 0 || has(self.platform.hosted) && has(self.platform.hosted.nodes)",message="machinePools need clusters that take nodes: write 'platform: {hosted: {nodes: {}}}'",fieldPath=".machinePools"
type ClusterPoolSpec struct {
	// platform says where and by whom the pool's clusters are installed. Part of the pool's version.
	// +required
	Platform Platform `json:"platform"`

	// pullSecretRef names a Secret in the pool's namespace with the key .dockerconfigjson. Its content is copied into each cluster's namespace.
	// +optional
	PullSecretRef *LocalObjectReference `json:"pullSecretRef,omitempty"`

	// size is how many unclaimed clusters the pool keeps, installing ones included. Waiting claims come on top.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:XValidation:rule="self >= 0",message="size must not be negative; write 0 to keep no clusters"
	// +required
	Size int32 `json:"size"`

	// runningCount is how many of the unclaimed clusters, the oldest first, run; the rest hibernate. Waiting claims come on top. Unset means 0.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:XValidation:rule="self >= 0",message="runningCount must not be negative; write 0 to let all unclaimed clusters hibernate"
	// +optional
	RunningCount int32 `json:"runningCount,omitempty"`

	// maxSize is the most clusters the pool may have at a time, claimed and deleting ones included. Unset means no limit.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:XValidation:rule="self >= 0",message="maxSize must not be negative; leave it out for no limit"
	// +optional
	MaxSize *int32 `json:"maxSize,omitempty"`

	// maxConcurrent is the most clusters that may be installing (unclaimed) or deleting (claimed or not) at a time. Unset means no limit; 0 freezes creation
	// and deletion, while claims are still served.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:XValidation:rule="self >= 0",message="maxConcurrent must not be negative; leave it out for no limit, or write 0 to freeze the pool"
	// +optional
	MaxConcurrent *int32 `json:"maxConcurrent,omitempty"`

	// baseDomain is the domain below which the pool's clusters have their names. Part of the pool's version.
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$')",message="write a domain of lower-case letters, digits, '-' and '.', such as 'clusters.example.com'"
	// +kubebuilder:validation:MaxLength=253
	// +required
	BaseDomain string `json:"baseDomain"`

	// imageSetRef names the ClusterImageSet whose release new clusters get. Part of the pool's version, by name.
	// +kubebuilder:validation:XValidation:rule="size(self.name) > 0",fieldPath=".name",message="write the name of a ClusterImageSet"
	// +required
	ImageSetRef ClusterImageSetReference `json:"imageSetRef"`

	// labels are put on new ClusterDeployments. Clusters that exist keep theirs.
	// +kubebuilder:validation:MaxProperties=256
	// +optional
	Labels map[string]string `json:"labels,omitempty"`

	// annotations are put on new ClusterDeployments. Clusters that exist keep theirs.
	// +kubebuilder:validation:MaxProperties=256
	// +optional
	Annotations map[string]string `json:"annotations,omitempty"`

	// installConfigSecretTemplateRef names a Secret in the pool's namespace whose key install-config.yaml is the template of each cluster's install-config; name and
	// base domain are replaced, all else is kept. Part of the pool's version, by name.
	// +optional
	InstallConfigSecretTemplateRef *LocalObjectReference `json:"installConfigSecretTemplateRef,omitempty"`

	// hibernateAfter is copied to new ClusterDeployments: a claimed cluster hibernates when it has run that long. A duration such as 8h or 1h30m.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]+([.][0-9]+)?(ns|us|µs|ms|s|m|h))+$')",message="write a duration of hours, minutes and seconds, such as '48h' or '1h30m'; days are not known"
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="!self.matches('[0-9]{6}h|[0-9]{8}m([^s]|$)|[0-9]{10}s|[0-9]{13}ms|[0-9]{16}(us|µs)|[0-9]{19}ns')",message="the duration is too long to be represented; write at most 99999h, 9999999m or 999999999s"
	// +optional
	HibernateAfter *metav1.Duration `json:"hibernateAfter,omitempty"`

	// installAttemptsLimit is copied to new ClusterDeployments: how often installation is tried. Unset means no limit.
	// +optional
	InstallAttemptsLimit *int32 `json:"installAttemptsLimit,omitempty"`

	// installTimeout is how long an unclaimed cluster may take to be installed; after that it counts as broken and is replaced. A duration such as 2h. Unset means 10 minutes for
	// clusters of the platform hosted, and for ever for all others; 0s means for ever.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]+([.][0-9]+)?(ns|us|µs|ms|s|m|h))+$')",message="write a duration of hours, minutes and seconds, such as '48h' or '1h30m'; days are not known"
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="!self.matches('[0-9]{6}h|[0-9]{8}m([^s]|$)|[0-9]{10}s|[0-9]{13}ms|[0-9]{16}(us|µs)|[0-9]{19}ns')",message="the duration is too long to be represented; write at most 99999h, 9999999m or 999999999s"
	// +optional
	InstallTimeout *metav1.Duration `json:"installTimeout,omitempty"`

	// installerEnv is copied to new ClusterDeployments: environment variables of the installer.
	// +kubebuilder:validation:MaxItems=1024
	// +listType=atomic
	// +optional
	InstallerEnv []corev1.EnvVar `json:"installerEnv,omitempty"`

	// skipMachinePools says that clusters have no MachinePools: none of machinePools is made, and a claim's subjects get no rights on MachinePools.
	// +optional
	SkipMachinePools bool `json:"skipMachinePools,omitempty"`

	// machinePools are machines that each new cluster gets beside its control plane: a MachinePool each, unless skipMachinePools is set. A cluster counts as running once the
	// nodes of all of them were Ready. Part of the pool's version.
	// +kubebuilder:validation:MaxItems=16
	// +listType=map
	// +listMapKey=name
	// +optional
	MachinePools []ClusterPoolMachinePool `json:"machinePools,omitempty"`

	// claimLifetime bounds how long claims of this pool live.
	// +optional
	ClaimLifetime *ClusterPoolClaimLifetime `json:"claimLifetime,omitempty"`

	// hibernationConfig says how clusters of the pool hibernate and resume.
	// +optional
	HibernationConfig *HibernationConfig `json:"hibernationConfig,omitempty"`

	// inventory lists the names that clusters of this pool may have. With it, the pool never has more clusters than names.
	// Whether there is an inventory is part of the pool's version, its entries are not.
	// +optional
	Inventory *ClusterPoolInventory `json:"inventory,omitempty"`

	// customizationRef names a ClusterDeploymentCustomization in the pool's namespace for the controller that installs the pool's clusters. Part of the pool's version, by name.
	// +optional
	CustomizationRef *LocalObjectReference `json:"customizationRef,omitempty"`

	// claimPolicy says which cluster a claim gets: OldestFirst (the default) the oldest installed one, which is resumed if it sleeps; RunningFirst the oldest running one, and a
	// sleeping one only if none runs.
	// +kubebuilder:default=OldestFirst
	// +optional
	ClaimPolicy ClaimPolicy `json:"claimPolicy,omitempty"`

	// clusterInstallTemplate is the install object that each new cluster gets. Without it, the platform alone says who installs.
	// +optional
	ClusterInstallTemplate *ClusterInstallTemplate `json:"clusterInstallTemplate,omitempty"`
}

// ClaimPolicy says which cluster of a pool a claim gets.
// +kubebuilder:validation:Enum=OldestFirst;RunningFirst
type ClaimPolicy string

const (
	// ClaimPolicyOldestFirst gives the oldest installed cluster, and resumes it if it sleeps.
	ClaimPolicyOldestFirst ClaimPolicy = "OldestFirst"
	// ClaimPolicyRunningFirst gives the oldest running cluster, and a sleeping one only if none runs.
	ClaimPolicyRunningFirst ClaimPolicy = "RunningFirst"
)

// ClusterPoolClaimLifetime bounds how long claims of a pool live, counted from when they got their cluster.
type ClusterPoolClaimLifetime struct {
	// default is the lifetime of a claim that names none. A duration such as 24h.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]+([.][0-9]+)?(ns|us|µs|ms|s|m|h))+$')",message="write a duration of hours, minutes and seconds, such as '48h' or '1h30m'; days are not known"
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="!self.matches('[0-9]{6}h|[0-9]{8}m([^s]|$)|[0-9]{10}s|[0-9]{13}ms|[0-9]{16}(us|µs)|[0-9]{19}ns')",message="the duration is too long to be represented; write at most 99999h, 9999999m or 999999999s"
	// +optional
	Default *metav1.Duration `json:"default,omitempty"`

	// maximum is the longest lifetime of any claim; a claim that asks for more gets this. A duration such as 72h.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]+([.][0-9]+)?(ns|us|µs|ms|s|m|h))+$')",message="write a duration of hours, minutes and seconds, such as '48h' or '1h30m'; days are not known"
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="!self.matches('[0-9]{6}h|[0-9]{8}m([^s]|$)|[0-9]{10}s|[0-9]{13}ms|[0-9]{16}(us|µs)|[0-9]{19}ns')",message="the duration is too long to be represented; write at most 99999h, 9999999m or 999999999s"
	// +optional
	Maximum *metav1.Duration `json:"maximum,omitempty"`
}

// HibernationConfig says how clusters of a pool hibernate and resume.
type HibernationConfig struct {
	// resumeTimeout is how long an unclaimed cluster may take to resume; after that it counts as broken and is replaced. A duration such as 20m. Unset or 0 means for ever.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]+([.][0-9]+)?(ns|us|µs|ms|s|m|h))+$')",message="write a duration of hours, minutes and seconds, such as '48h' or '1h30m'; days are not known"
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="!self.matches('[0-9]{6}h|[0-9]{8}m([^s]|$)|[0-9]{10}s|[0-9]{13}ms|[0-9]{16}(us|µs)|[0-9]{19}ns')",message="the duration is too long to be represented; write at most 99999h, 9999999m or 999999999s"
	// +optional
	ResumeTimeout *metav1.Duration `json:"resumeTimeout,omitempty"`
}

// ClusterPoolInventory lists what clusters of a pool may be made of.
//
// The schema gives it no type, because the field held a list once: a type would refuse that form with the words of a type error, to the user who applies it, and no rule could say what to write.
// An admission policy does (deploy/base/pool-operator/admission.yaml), and it has the rules about entries too: rules of a schema do not reach below a field without a type.
// +kubebuilder:validation:Type=""
// +kubebuilder:pruning:PreserveUnknownFields
type ClusterPoolInventory struct {
	// clusterDeployments lists, for each cluster the pool may have, its details: its name.
	// +kubebuilder:validation:MaxItems=1024
	// +listType=map
	// +listMapKey=name
	// +optional
	ClusterDeployments []InventoryClusterDeployment `json:"clusterDeployments,omitempty"`

	// Unusable is the JSON of an inventory that is no object, such as a list that was stored before Muster; nil otherwise. The entries of such a list name
	// customizations of clusters, which are no names of clusters: nothing is made of them.
	Unusable []byte `json:"-"`
}

// InventoryClusterDeployment is what one cluster of a pool is made of. A name that is left out counts as empty, so that one rule says what to write.
type InventoryClusterDeployment struct {
	// name is the short name of the cluster: its spec.clusterName, and the first part of the name of its ClusterDeployment and namespace. At most 57 characters, because those are
	// '<name>-<5 characters>'; lower-case letters, digits and '-', the first and the last a letter or digit.
	// +kubebuilder:validation:MaxLength=57
	// +kubebuilder:default=""
	// +required
	Name string `json:"name"`
}

// ClusterInstallTemplate is the install object that each new cluster of a pool gets. Its kind follows the install contract, see ClusterInstall.
type ClusterInstallTemplate struct {
	// apiVersion of the install object, such as extensions.hive.openshift.io/v1beta1.
	// +kubebuilder:validation:MaxLength=317
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9.]*[a-z0-9])?/v[0-9][a-z0-9]*$')",message="write group and version of the install object, such as 'extensions.hive.openshift.io/v1beta1'"
	// +kubebuilder:validation:XValidation:rule="!self.matches('^([^.]*|hive[.]openshift[.]io|.*[.]k8s[.]io)/')",message="write the group of an installer; kinds of Kubernetes and of hive.openshift.io install no cluster"
	// +required
	APIVersion string `json:"apiVersion"`

	// kind of the install object, such as AgentClusterInstall.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +required
	Kind string `json:"kind"`

	// labels of the install object.
	// +kubebuilder:validation:MaxProperties=256
	// +optional
	Labels map[string]string `json:"labels,omitempty"`

	// annotations of the install object.
	// +kubebuilder:validation:MaxProperties=256
	// +optional
	Annotations map[string]string `json:"annotations,omitempty"`

	// spec of the install object. The pool sets clusterDeploymentRef.name in it, and imageSetRef.name unless it is there already; all else is copied as it is.
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Type=object
	// +optional
	Spec *runtime.RawExtension `json:"spec,omitempty"`
}

// ClusterPool keeps clusters ready for people who ask for one with a ClusterClaim. A cluster that was claimed is replaced by a new one.
// +kubebuilder:validation:XValidation:rule="oldSelf.hasValue() || self.metadata.name.size() <= 63",optionalOldSelf=true,message="write a name of at most 63 characters: it becomes a label of the pool's clusters"
// +genclient
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:subresource:scale:specpath=.spec.size,statuspath=.status.size,selectorpath=.status.selector
// +kubebuilder:metadata:labels="muster.io/crds=pool-operator"
// +kubebuilder:resource:path=clusterpools,scope=Namespaced,shortName=cp,categories=muster
// +kubebuilder:printcolumn:name="Size",type=string,JSONPath=`.spec.size`,description="Unclaimed clusters wanted"
// +kubebuilder:printcolumn:name="Standby",type=string,JSONPath=`.status.standby`,description="Unclaimed clusters that are installed and not running"
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.ready`,description="Unclaimed clusters that are installed and running"
// +kubebuilder:printcolumn:name="Claimed",type=string,JSONPath=`.status.claimed`,description="Clusters that claims have"
// +kubebuilder:printcolumn:name="Waiting",type=string,JSONPath=`.status.pendingClaims`,description="Claims that wait for a cluster"
// +kubebuilder:printcolumn:name="State",type=string,JSONPath=`.status.conditions[?(@.type=='Ready')].reason`,description="Whether the pool is as it should be, and if not why"
// +kubebuilder:printcolumn:name="BaseDomain",type=string,JSONPath=`.spec.baseDomain`,description="Domain of the clusters"
// +kubebuilder:printcolumn:name="ImageSet",type=string,JSONPath=`.spec.imageSetRef.name`,description="Release of new clusters"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`,description="Time since creation"
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=='Ready')].message`,description="What keeps the pool from being as it should be"
type ClusterPool struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec says how many clusters stand ready and what they are like.
	// +required
	Spec ClusterPoolSpec `json:"spec"`

	// status says how the pool stands and what it is about to do.
	// +optional
	// +kubebuilder:default={"observedGeneration":-1}
	Status ClusterPoolStatus `json:"status,omitempty"`
}

// ClusterPoolList is a list of ClusterPools.
// +kubebuilder:object:root=true
type ClusterPoolList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	// items are the ClusterPools.
	Items []ClusterPool `json:"items"`
}
