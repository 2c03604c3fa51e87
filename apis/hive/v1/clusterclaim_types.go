// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package v1

import (
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ClusterClaimSpec says from which pool a cluster is wanted, for whom and for how long.
// +kubebuilder:validation:XValidation:rule="oldSelf.hasValue() || !has(self.__namespace__) || size(self.__namespace__) == 0",optionalOldSelf=true,fieldPath=".namespace",reason=FieldValueForbidden,message="leave spec.namespace out: it is where the operator writes which cluster the claim got"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.__namespace__) || size(oldSelf.__namespace__) == 0 || self.clusterPoolName == oldSelf.clusterPoolName",fieldPath=".clusterPoolName",message="the claim already has a cluster of this pool; delete the claim and create one for the other pool"
type ClusterClaimSpec struct {
	// clusterPoolName names the pool, in the claim's namespace.
	// +kubebuilder:validation:XValidation:rule="size(self) > 0",message="write the name of a ClusterPool in the namespace of the claim"
	// +kubebuilder:validation:MaxLength=253
	// +required
	ClusterPoolName string `json:"clusterPoolName"`

	// subjects are who gets access to the cluster: to everything of this API group in its namespace, and to its credentials.
	// +kubebuilder:validation:MaxItems=1024
	// +listType=atomic
	// +optional
	Subjects []rbacv1.Subject `json:"subjects,omitempty"`

	// namespace is written by the operator: the namespace of the ClusterDeployment that the claim got, which is also its name. The cluster may still be resuming then;
	// wait for the condition ClusterRunning.
	// +kubebuilder:validation:MaxLength=63
	// +optional
	Namespace string `json:"namespace,omitempty"`

	// lifetime is how long the claim lives once it has a cluster; then it is deleted, and the cluster with it. The pool may set a default and a maximum. A duration such as 8h.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]+([.][0-9]+)?(ns|us|µs|ms|s|m|h))+$')",message="write a duration of hours, minutes and seconds, such as '48h' or '1h30m'; days are not known"
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="!self.matches('[0-9]{6}h|[0-9]{8}m([^s]|$)|[0-9]{10}s|[0-9]{13}ms|[0-9]{16}(us|µs)|[0-9]{19}ns')",message="the duration is too long to be represented; write at most 99999h, 9999999m or 999999999s"
	// +optional
	Lifetime *metav1.Duration `json:"lifetime,omitempty"`

	// queueTimeout is how long the claim waits for a cluster, counted from its creation. After that it leaves the queue and says so; a longer queueTimeout puts it back.
	// A duration such as 30m. Unset means for ever.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]+([.][0-9]+)?(ns|us|µs|ms|s|m|h))+$')",message="write a duration of hours, minutes and seconds, such as '48h' or '1h30m'; days are not known"
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="!self.matches('[0-9]{6}h|[0-9]{8}m([^s]|$)|[0-9]{10}s|[0-9]{13}ms|[0-9]{16}(us|µs)|[0-9]{19}ns')",message="the duration is too long to be represented; write at most 99999h, 9999999m or 999999999s"
	// +optional
	QueueTimeout *metav1.Duration `json:"queueTimeout,omitempty"`
}

// ClusterClaimStatus says whether the claim has a cluster, and if not why.
type ClusterClaimStatus struct {
	// conditions are Pending and ClusterRunning.
	// +kubebuilder:validation:MaxItems=64
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []Condition `json:"conditions,omitempty"`

	// lifetime is how long the claim lives once it has a cluster, with the pool's default and maximum taken into account.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=64
	// +optional
	Lifetime *metav1.Duration `json:"lifetime,omitempty"`

	// queuePosition is the claim's place among the waiting claims of its pool: 1 is served next. Absent when the claim does not wait.
	// +kubebuilder:validation:Minimum=0
	// +optional
	QueuePosition int32 `json:"queuePosition,omitempty"`

	// waitingFor says what a waiting claim waits for. Absent when the claim does not wait.
	// +optional
	WaitingFor WaitReason `json:"waitingFor,omitempty"`

	// estimatedAssignmentTime is when the claim will probably get a cluster. Absent when there is nothing to estimate it from.
	// +optional
	EstimatedAssignmentTime *metav1.Time `json:"estimatedAssignmentTime,omitempty"`
}

// WaitReason says what a claim waits for.
// +kubebuilder:validation:Enum=Assignment;Provisioning;ProvisioningFailing;PoolAtCapacity;InventoryExhausted;MissingDependencies;PoolFrozen;PoolEmpty;PoolNotFound;PoolDeleting;QueueTimedOut
type WaitReason string

// Reasons why a claim waits.
const (
	// WaitAssignment: a cluster is free and is being assigned.
	WaitAssignment WaitReason = "Assignment"
	// WaitProvisioning: clusters are being installed.
	WaitProvisioning WaitReason = "Provisioning"
	// WaitProvisioningFailing: clusters break while they are installed; the pool's status.provisioning says how.
	WaitProvisioningFailing WaitReason = "ProvisioningFailing"
	// WaitPoolAtCapacity: the pool has maxSize clusters; one has to be released first.
	WaitPoolAtCapacity WaitReason = "PoolAtCapacity"
	// WaitInventoryExhausted: every name of the pool's inventory is taken; one has to be released or added first.
	WaitInventoryExhausted WaitReason = "InventoryExhausted"
	// WaitMissingDependencies: something that new clusters need is not there; the pool's MissingDependencies condition says what.
	WaitMissingDependencies WaitReason = "MissingDependencies"
	// WaitPoolFrozen: the pool's maxConcurrent lets no cluster be created now.
	WaitPoolFrozen WaitReason = "PoolFrozen"
	// WaitPoolEmpty: the pool has no cluster and creates one for the claim.
	WaitPoolEmpty WaitReason = "PoolEmpty"
	// WaitPoolNotFound: there is no pool of that name in the claim's namespace.
	WaitPoolNotFound WaitReason = "PoolNotFound"
	// WaitPoolDeleting: the pool is being deleted and gives out no more clusters.
	WaitPoolDeleting WaitReason = "PoolDeleting"
	// WaitQueueTimedOut: spec.queueTimeout is over; the claim left the queue.
	WaitQueueTimedOut WaitReason = "QueueTimedOut"
)

// ClusterClaim asks for a cluster of a pool. Deleting it gives the cluster back, which is then deleted.
// +genclient
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:metadata:labels="muster.io/crds=pool-operator"
// +kubebuilder:resource:path=clusterclaims,scope=Namespaced,shortName=cclaim,categories=muster
// +kubebuilder:selectablefield:JSONPath=`.spec.clusterPoolName`
// +kubebuilder:printcolumn:name="Pool",type=string,JSONPath=`.spec.clusterPoolName`,description="Pool the cluster comes from"
// +kubebuilder:printcolumn:name="Pending",type=string,JSONPath=`.status.conditions[?(@.type=='Pending')].reason`,description="Whether the claim has a cluster"
// +kubebuilder:printcolumn:name="Waiting",type=string,JSONPath=`.status.waitingFor`,description="What a waiting claim waits for"
// +kubebuilder:printcolumn:name="Position",type=integer,JSONPath=`.status.queuePosition`,description="Place in the queue, 1 is next"
// +kubebuilder:printcolumn:name="ClusterNamespace",type=string,JSONPath=`.spec.namespace`,description="Namespace of the cluster"
// +kubebuilder:printcolumn:name="ClusterRunning",type=string,JSONPath=`.status.conditions[?(@.type=='ClusterRunning')].reason`,description="Whether the cluster runs"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`,description="Time since creation"
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=='Pending')].message`,description="What the claim waits for, in a sentence"
type ClusterClaim struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec says from which pool a cluster is wanted, for whom and for how long.
	// +required
	Spec ClusterClaimSpec `json:"spec"`

	// status says whether the claim has a cluster, and if not why.
	// +optional
	// +kubebuilder:default={conditions: {{type: "Ready", status: "Unknown", reason: "Initialized", message: "pool-operator has not looked at the object yet"}}}
	Status ClusterClaimStatus `json:"status,omitempty"`
}

// ClusterClaimList is a list of ClusterClaims.
// +kubebuilder:object:root=true
type ClusterClaimList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	// items are the ClusterClaims.
	Items []ClusterClaim `json:"items"`
}
