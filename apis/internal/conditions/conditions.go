// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package conditions reads and writes lists of conditions in the shapes that kinds in the field have. The shapes differ in the name of one time.
package conditions

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Fields are those of a condition.
type Fields struct {
	Type, Reason, Message *string
	Status                *corev1.ConditionStatus
	// Observed is lastProbeTime or lastHeartbeatTime, Transition is lastTransitionTime.
	Observed, Transition *metav1.Time
}

// Of returns the fields of a condition of the shape C.
type Of[C any] func(*C) Fields

// Find returns the condition of the type, or nil. The pointer leads into conditions.
func (of Of[C]) Find(conditions []C, conditionType string) *C {
	for i := range conditions {
		if *of(&conditions[i]).Type == conditionType {
			return &conditions[i]
		}
	}
	return nil
}

// IsTrue says whether the condition of the type is there and True.
func (of Of[C]) IsTrue(conditions []C, conditionType string) bool {
	c := of.Find(conditions, conditionType)
	return c != nil && *of(c).Status == corev1.ConditionTrue
}

// Longest texts that the schemas of the kinds take. A longer one, such as what another installer or an admission webhook said, would be refused with the whole status.
const (
	longestReason  = 1024
	longestMessage = 32768
)

func cut(text string, longest int) string {
	if len(text) <= longest {
		return text
	}
	return strings.ToValidUTF8(text[:longest], "")
}

// Set puts condition into conditions and says whether anything changed. Unless something changed nothing is touched, so that a pass without news
// writes nothing. The time of the transition moves with status only; both times are taken from now when condition leaves them empty. Texts are cut to what the API server takes.
func (of Of[C]) Set(conditions *[]C, condition C, now metav1.Time) bool {
	next := of(&condition)
	*next.Reason, *next.Message = cut(*next.Reason, longestReason), cut(*next.Message, longestMessage)
	for _, at := range []*metav1.Time{next.Observed, next.Transition} {
		if at.IsZero() {
			*at = now
		}
	}
	existing := of.Find(*conditions, *next.Type)
	if existing == nil {
		*conditions = append(*conditions, condition)
		return true
	}
	was := of(existing)
	if *was.Status == *next.Status {
		if *was.Reason == *next.Reason && *was.Message == *next.Message {
			return false
		}
		if !was.Transition.IsZero() {
			*next.Transition = *was.Transition
		}
	}
	*existing = condition
	return true
}

// Summarize returns the condition summary, which is True while those of the types all are. Its reason and message are those of the first that is
// not True, else of the last; the order of types is that in which a user has to see to them. Conditions of a type that is missing count as
// Unknown, for the reason missing.
func (of Of[C]) Summarize(summary, missing string, conditions []C, types ...string) C {
	var out C
	said := of(&out)
	*said.Type, *said.Status = summary, corev1.ConditionTrue
	for _, conditionType := range types {
		c := of.Find(conditions, conditionType)
		if c == nil {
			*said.Status, *said.Reason, *said.Message = corev1.ConditionFalse, missing, conditionType+" is not known yet"
			break
		}
		is := of(c)
		*said.Reason, *said.Message = *is.Reason, *is.Message
		if *is.Status != corev1.ConditionTrue {
			*said.Status = corev1.ConditionFalse
			break
		}
	}
	return out
}
