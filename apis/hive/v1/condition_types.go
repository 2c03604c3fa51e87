// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package v1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-io/muster/apis/internal/conditions"
)

// Condition says one thing about an object of this group. The shape is that of the kinds in the field: it has a probe time and no observedGeneration.
type Condition struct {
	// type names what the condition is about; there is one condition of a type.
	// +kubebuilder:validation:MaxLength=316
	// +required
	Type string `json:"type"`

	// status is True, False or Unknown.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +required
	Status corev1.ConditionStatus `json:"status"`

	// lastProbeTime is when the condition was last looked at. It is written together with a change only, never alone.
	// +optional
	LastProbeTime metav1.Time `json:"lastProbeTime,omitempty,omitzero"`

	// lastTransitionTime is when status last changed.
	// +optional
	LastTransitionTime metav1.Time `json:"lastTransitionTime,omitempty,omitzero"`

	// reason says in one CamelCase word why status is what it is. The reasons of a type are a closed set, declared beside it.
	// +kubebuilder:validation:MaxLength=1024
	// +optional
	Reason string `json:"reason,omitempty"`

	// message says the same in a sentence for people, with names and counts.
	// +kubebuilder:validation:MaxLength=32768
	// +optional
	Message string `json:"message,omitempty"`
}

// ReasonInitialized is the reason of a condition that has not been evaluated yet; its status is Unknown.
const ReasonInitialized = "Initialized"

// conditionFields says where the rules that all kinds have for conditions find the fields of one.
var conditionFields conditions.Of[Condition] = func(c *Condition) conditions.Fields {
	return conditions.Fields{
		Type: &c.Type, Status: &c.Status, Reason: &c.Reason, Message: &c.Message, Observed: &c.LastProbeTime, Transition: &c.LastTransitionTime,
	}
}

// FindCondition returns the condition of the type, or nil. The pointer leads into conditions.
func FindCondition(conditions []Condition, conditionType string) *Condition {
	return conditionFields.Find(conditions, conditionType)
}

// IsConditionTrue says whether the condition of the type is there and True.
func IsConditionTrue(conditions []Condition, conditionType string) bool {
	return conditionFields.IsTrue(conditions, conditionType)
}

// SetCondition puts condition into conditions and says whether anything changed. Unless something changed nothing is touched, so that a pass
// without news writes nothing. lastTransitionTime moves with status only; both times are taken from now when condition leaves them empty.
func SetCondition(conditions *[]Condition, condition Condition, now metav1.Time) bool {
	return conditionFields.Set(conditions, condition, now)
}

// Summarize returns the condition summary, which is True while those of the types all are. Its reason and message are those of the first that is
// not True, else of the last; the order of types is that in which a user has to see to them. Conditions of a type that is missing count as
// Unknown.
func Summarize(summary string, conditions []Condition, types ...string) Condition {
	return conditionFields.Summarize(summary, ReasonInitialized, conditions, types...)
}
