// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package v1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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

// FindCondition returns the condition of the type, or nil. The pointer leads into conditions.
func FindCondition(conditions []Condition, conditionType string) *Condition {
	for i := range conditions {
		if conditions[i].Type == conditionType {
			return &conditions[i]
		}
	}
	return nil
}

// IsConditionTrue says whether the condition of the type is there and True.
func IsConditionTrue(conditions []Condition, conditionType string) bool {
	c := FindCondition(conditions, conditionType)
	return c != nil && c.Status == corev1.ConditionTrue
}

// SetCondition puts condition into conditions and says whether anything changed. Unless something changed nothing is touched, so that a pass
// without news writes nothing. lastTransitionTime moves with status only; both times are taken from now when condition leaves them empty.
func SetCondition(conditions *[]Condition, condition Condition, now metav1.Time) bool {
	if condition.LastProbeTime.IsZero() {
		condition.LastProbeTime = now
	}
	if condition.LastTransitionTime.IsZero() {
		condition.LastTransitionTime = now
	}
	existing := FindCondition(*conditions, condition.Type)
	if existing == nil {
		*conditions = append(*conditions, condition)
		return true
	}
	if existing.Status == condition.Status && existing.Reason == condition.Reason && existing.Message == condition.Message {
		return false
	}
	if existing.Status == condition.Status && !existing.LastTransitionTime.IsZero() {
		condition.LastTransitionTime = existing.LastTransitionTime
	}
	*existing = condition
	return true
}

// Summarize returns the condition summary, which is True while those of the types all are. Its reason and message are those of the first that is
// not True, else of the last; the order of types is that in which a user has to see to them. Conditions of a type that is missing count as
// Unknown.
func Summarize(summary string, conditions []Condition, types ...string) Condition {
	said := Condition{Type: summary, Status: corev1.ConditionTrue}
	for _, conditionType := range types {
		c := FindCondition(conditions, conditionType)
		if c == nil {
			c = &Condition{Reason: ReasonInitialized, Message: conditionType + " is not known yet"}
		}
		said.Reason, said.Message = c.Reason, c.Message
		if c.Status != corev1.ConditionTrue {
			said.Status = corev1.ConditionFalse
			return said
		}
	}
	return said
}
