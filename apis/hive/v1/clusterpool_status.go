// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// ClusterPoolStatus says how a pool stands and what it is about to do.
type ClusterPoolStatus struct {
	// observedGeneration is the generation of the spec that this status is about. -1 while no controller has looked at the object.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// size is the number of unclaimed clusters: installing, standby, ready, broken, and those that are paused.
	// +optional
	Size int32 `json:"size"`

	// standby is the number of unclaimed clusters that are installed and not running. Paused ones, which claims do not get, count neither here nor as ready.
	// +optional
	Standby int32 `json:"standby"`

	// ready is the number of unclaimed clusters that are installed and running.
	// +optional
	Ready int32 `json:"ready"`

	// installing is the number of unclaimed clusters that are not installed yet, broken ones left out.
	// +optional
	Installing int32 `json:"installing,omitempty"`

	// broken is the number of unclaimed clusters whose installation stopped or that do not resume.
	// +optional
	Broken int32 `json:"broken,omitempty"`

	// claimed is the number of clusters that claims have.
	// +optional
	Claimed int32 `json:"claimed,omitempty"`

	// deleting is the number of clusters, claimed or not, that are being deleted.
	// +optional
	Deleting int32 `json:"deleting,omitempty"`

	// pendingClaims is the number of claims that wait for a cluster.
	// +optional
	PendingClaims int32 `json:"pendingClaims,omitempty"`

	// selector selects the pool's ClusterDeployments, in the form that autoscalers read from the scale subresource.
	// +kubebuilder:validation:MaxLength=1024
	// +optional
	Selector string `json:"selector,omitempty"`

	// conditions say what is and is not as it should be; the reasons are declared with the types.
	// +kubebuilder:validation:MaxItems=64
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []Condition `json:"conditions,omitempty"`

	// clusterNameUsage says for each name of the inventory in which namespace the ClusterDeployment that has it lives; empty means that the name is free.
	// A name is taken here before its cluster is created, and released when the cluster is gone.
	// +kubebuilder:validation:MaxProperties=2048
	// +optional
	ClusterNameUsage map[string]string `json:"clusterNameUsage,omitempty"`

	// operations are the creations and deletions that were decided and whose effect has not been seen yet. Each is recorded here before it is carried out and is
	// carried out again after a crash.
	// +kubebuilder:validation:MaxItems=64
	// +listType=map
	// +listMapKey=namespace
	// +optional
	Operations []ClusterPoolOperation `json:"operations,omitempty"`

	// observed says how new the view was on which the last creations and deletions were decided. A later decision needs a view at least as new.
	// +optional
	Observed *ClusterPoolObservation `json:"observed,omitempty"`

	// provisioning says how installing goes, and when it is tried again after failures.
	// +optional
	Provisioning *ClusterPoolProvisioning `json:"provisioning,omitempty"`

	// runningCountRecommendation says which runningCount would fit what the pool saw.
	// +optional
	RunningCountRecommendation *RunningCountRecommendation `json:"runningCountRecommendation,omitempty"`
}

// OperationKind says what an operation does.
// +kubebuilder:validation:Enum=Create;Delete
type OperationKind string

const (
	// OperationCreate creates a namespace and the ClusterDeployment in it.
	OperationCreate OperationKind = "Create"
	// OperationDelete deletes a ClusterDeployment, or makes sure that one whose creation was refused is never created.
	OperationDelete OperationKind = "Delete"
)

// ClusterPoolOperation is one creation or deletion that was decided.
type ClusterPoolOperation struct {
	// namespace of the cluster, which is also the name of its ClusterDeployment.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +required
	Namespace string `json:"namespace"`

	// kind says what is done: Create, or Delete, which also makes sure that a cluster whose creation was refused is never created.
	// +required
	Kind OperationKind `json:"kind"`

	// clusterName is the spec.clusterName that a cluster to be created gets.
	// +kubebuilder:validation:MaxLength=253
	// +optional
	ClusterName string `json:"clusterName,omitempty"`

	// running says that a cluster to be created is to run when it is installed; otherwise it hibernates.
	// +optional
	Running bool `json:"running,omitempty"`

	// uid is that of the ClusterDeployment to be deleted; another one of the same name is left alone.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=128
	// +optional
	UID types.UID `json:"uid,omitempty"`

	// why says in one word what led to the decision, the same word that log, event and metric use.
	// +kubebuilder:validation:MaxLength=64
	// +optional
	Why string `json:"why,omitempty"`

	// recordedAt is when the operation was decided.
	// +optional
	RecordedAt metav1.Time `json:"recordedAt,omitempty,omitzero"`
}

// ClusterPoolObservation says how new a view was, per kind.
type ClusterPoolObservation struct {
	// clusterDeployments is the resourceVersion up to which the view of ClusterDeployments had come.
	// +kubebuilder:validation:MaxLength=128
	// +optional
	ClusterDeployments string `json:"clusterDeployments,omitempty"`

	// clusterClaims is the resourceVersion up to which the view of ClusterClaims had come.
	// +kubebuilder:validation:MaxLength=128
	// +optional
	ClusterClaims string `json:"clusterClaims,omitempty"`
}

// CircuitBreakerState says whether a pool creates clusters after failures.
// +kubebuilder:validation:Enum=Closed;Open;HalfOpen
type CircuitBreakerState string

const (
	// CircuitBreakerClosed means that clusters are created as usual.
	CircuitBreakerClosed CircuitBreakerState = "Closed"
	// CircuitBreakerOpen means that no cluster is created before nextAttemptTime.
	CircuitBreakerOpen CircuitBreakerState = "Open"
	// CircuitBreakerHalfOpen means that one cluster is being tried; its outcome closes or opens the breaker.
	CircuitBreakerHalfOpen CircuitBreakerState = "HalfOpen"
)

// ClusterPoolProvisioning says how installing clusters of a pool goes.
type ClusterPoolProvisioning struct {
	// circuitBreaker is Closed when clusters are created as usual, Open when creation pauses until nextAttemptTime, HalfOpen while a single cluster is tried.
	// +optional
	CircuitBreaker CircuitBreakerState `json:"circuitBreaker,omitempty"`

	// consecutiveFailures counts the clusters that broke since one was last installed.
	// +kubebuilder:validation:Minimum=0
	// +optional
	ConsecutiveFailures int32 `json:"consecutiveFailures,omitempty"`

	// lastFailureReason is the reason that the last broken cluster gave.
	// +kubebuilder:validation:MaxLength=1024
	// +optional
	LastFailureReason string `json:"lastFailureReason,omitempty"`

	// lastFailureMessage is the sentence that the last broken cluster gave, cut to what fits.
	// +kubebuilder:validation:MaxLength=2048
	// +optional
	LastFailureMessage string `json:"lastFailureMessage,omitempty"`

	// lastFailureCluster is the namespace of the last broken cluster.
	// +kubebuilder:validation:MaxLength=63
	// +optional
	LastFailureCluster string `json:"lastFailureCluster,omitempty"`

	// lastFailureTime is when the last broken cluster was noticed.
	// +optional
	LastFailureTime *metav1.Time `json:"lastFailureTime,omitempty"`

	// specHash identifies what new clusters were made of, as far as the spec says, when the last one broke. After a change of that the next one is tried at once.
	// +kubebuilder:validation:MaxLength=64
	// +optional
	SpecHash string `json:"specHash,omitempty"`

	// sourcesHash identifies the versions of the image set and of the Secrets that new clusters are made of, as they were seen last while clusters break. An operator that starts and finds
	// others tries the next cluster at once.
	// +kubebuilder:validation:MaxLength=64
	// +optional
	SourcesHash string `json:"sourcesHash,omitempty"`

	// nextAttemptTime is when the next cluster is created after a failure.
	// +optional
	NextAttemptTime *metav1.Time `json:"nextAttemptTime,omitempty"`
}

// RunningCountRecommendation says which runningCount would fit what the pool saw: the number of claims that arrive while a sleeping cluster becomes usable, rounded up, which is
// claimsPerHour × secondsToUsable / 3600.
type RunningCountRecommendation struct {
	// runningCount that is recommended.
	// +kubebuilder:validation:Minimum=0
	// +optional
	RunningCount int32 `json:"runningCount"`

	// claimsPerHour is how many claims arrived per hour, rounded up.
	// +kubebuilder:validation:Minimum=0
	// +optional
	ClaimsPerHour int32 `json:"claimsPerHour,omitempty"`

	// secondsToUsable is how long a sleeping cluster took to become usable, in seconds.
	// +kubebuilder:validation:Minimum=0
	// +optional
	SecondsToUsable int32 `json:"secondsToUsable,omitempty"`
}
