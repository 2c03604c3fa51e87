// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package conditionevent publishes changes of an object's conditions as events of Kubernetes.
package conditionevent

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"

	"github.com/muster-io/muster/apis/truncate"
)

// Rule says which reasons of a condition become events. The reason of the event is that of the condition, and so is its sentence.
type Rule struct {
	// Condition is the type of a condition.
	Condition string
	// Action is what the service does of which this is the outcome.
	Action string
	// Normal and Warning are reasons. Warnings are repeated when their sentence changes.
	Normal, Warning []string
	// Later leaves out what the condition says at first.
	Later bool
}

// Condition is what matters of one.
type Condition struct{ Type, Reason, Message string }

// Publish publishes the outcomes of an object, with another one that it concerns, or nil.
func Publish(recorder events.EventRecorder, object, related runtime.Object, rules []Rule, before, after []Condition) {
	for _, now := range after {
		was := find(before, now.Type)
		for _, rule := range rules {
			if rule.Condition != now.Type || rule.Later && was.Reason == "" {
				continue
			}
			switch {
			case slices.Contains(rule.Normal, now.Reason) && was.Reason != now.Reason:
				recorder.Eventf(object, related, corev1.EventTypeNormal, now.Reason, rule.Action, "%s", truncate.Note(now.Message))
			case slices.Contains(rule.Warning, now.Reason) && was != now:
				recorder.Eventf(object, related, corev1.EventTypeWarning, now.Reason, rule.Action, "%s", truncate.Note(now.Message))
			}
		}
	}
}

func find(conditions []Condition, kind string) Condition {
	for _, c := range conditions {
		if c.Type == kind {
			return c
		}
	}
	return Condition{}
}
