// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package health reads the conditions of Muster's kinds: what is not as it should be, and why. It is pure.
package health

import (
	"cmp"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	agentv1 "github.com/muster-io/muster/apis/agentinstall/v1beta1"
	hivev1 "github.com/muster-io/muster/apis/hive/v1"
	hiveextv1 "github.com/muster-io/muster/apis/hiveextensions/v1beta1"
	ipamv1 "github.com/muster-io/muster/apis/ipam/v1alpha1"
	metal3v1 "github.com/muster-io/muster/apis/metal3/v1alpha1"
)

// Severity orders problems: what does not end by itself comes first.
type Severity int

const (
	// Wrong does not end without an administrator or a user.
	Wrong Severity = iota
	// Waiting ends by itself, or waits for a decision of its user.
	Waiting
)

// String is the word that users read.
func (s Severity) String() string {
	if s == Wrong {
		return "wrong"
	}
	return "waiting"
}

// Problem says why an object is not as its spec asks for.
type Problem struct {
	Severity  Severity  `json:"-"`
	Kind      string    `json:"kind"`
	Namespace string    `json:"namespace,omitempty"`
	Name      string    `json:"name"`
	Reason    string    `json:"reason"`
	Message   string    `json:"message"`
	Since     time.Time `json:"since,omitzero"`
}

// Sort puts what is wrong before what waits, and what has been so for longest first.
func Sort(problems []Problem) {
	slices.SortStableFunc(problems, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.Severity, b.Severity), a.Since.Compare(b.Since),
			cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
}

// Of returns what is not as it should be with an object, or nil. Kinds that are not Muster's have no problems.
func Of(obj client.Object) []Problem {
	switch o := obj.(type) {
	case *hivev1.ClusterPool:
		return pool(o)
	case *hivev1.ClusterClaim:
		return claim(o)
	case *hivev1.ClusterDeployment:
		return cluster(o)
	case *hivev1.MachinePool:
		return machinePool(o)
	case *hiveextv1.AgentClusterInstall:
		return installation(o)
	case *agentv1.InfraEnv:
		return infraEnv(o)
	case *agentv1.Agent:
		return agent(o)
	case *agentv1.AgentReservation:
		return reservation(o)
	case *metal3v1.BareMetalHost:
		return host(o)
	case *metal3v1.BareMetalHostDiscovery:
		return discovery(o)
	case *ipamv1.IPPool:
		return addresses(o)
	case *ipamv1.IPClaim:
		return addressClaim(o)
	}
	return nil
}

// found is a condition that stands for a problem.
func found(kind string, obj client.Object, severity Severity, reason, message string, since metav1.Time) []Problem {
	return []Problem{{
		Severity: severity, Kind: kind, Namespace: obj.GetNamespace(), Name: obj.GetName(), Reason: reason, Message: message, Since: since.Time,
	}}
}

// severity is Waiting for the reasons that are named, and Wrong for all others.
func severity(reason string, waiting ...string) Severity {
	if slices.Contains(waiting, reason) {
		return Waiting
	}
	return Wrong
}

// unseen is an object without the condition that its operator writes first.
func unseen(kind string, obj client.Object, operator string) []Problem {
	return found(kind, obj, Waiting, hivev1.ReasonInitialized, "not reconciled yet: does "+operator+" run?", obj.GetCreationTimestamp())
}

// unready reads a condition that is True where all is well; nil is none.
func unready(kind, operator string, obj client.Object, at *metav1.Condition, waiting ...string) []Problem {
	switch {
	case at == nil || at.Reason == hivev1.ReasonInitialized: // the API server gives a new object such a condition
		return unseen(kind, obj, operator)
	case at.Status == metav1.ConditionTrue:
		return nil
	}
	return found(kind, obj, severity(at.Reason, waiting...), at.Reason, at.Message, at.LastTransitionTime)
}

// ofHive is a condition of one of Hive's kinds, or nil.
func ofHive(conditions []hivev1.Condition, conditionType string) *metav1.Condition {
	at := hivev1.FindCondition(conditions, conditionType)
	if at == nil {
		return nil
	}
	return &metav1.Condition{Status: metav1.ConditionStatus(at.Status), Reason: at.Reason, Message: at.Message, LastTransitionTime: at.LastTransitionTime}
}

// ofAgents is a condition of one of agent-service's kinds, or nil.
func ofAgents(conditions []agentv1.Condition, conditionType string) *metav1.Condition {
	at := agentv1.FindCondition(conditions, conditionType)
	if at == nil {
		return nil
	}
	return &metav1.Condition{Status: metav1.ConditionStatus(at.Status), Reason: at.Reason, Message: at.Message, LastTransitionTime: at.LastTransitionTime}
}
