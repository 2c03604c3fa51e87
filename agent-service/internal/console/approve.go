// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package console

import (
	"context"
	"net/http"
	"slices"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-io/muster/agent-service/internal/console/kubeclient"
	"github.com/muster-io/muster/agent-service/internal/domain"
	agentv1 "github.com/muster-io/muster/apis/agentinstall/v1beta1"
)

// mayApprove is true where one of the machines waits for its approval, and the Kubernetes API lets the person give it.
func (v *visit) mayApprove(machines []machine) bool {
	if !v.hasCluster() {
		return false
	}
	var namespaces []string
	for i := range machines {
		if m := &machines[i]; !m.Approved && m.Resource.Namespace != "" && !slices.Contains(namespaces, m.Resource.Namespace) {
			namespaces = append(namespaces, m.Resource.Namespace)
		}
	}
	c, err := v.cluster()
	if err != nil {
		return false
	}
	ctx, cancel := context.WithTimeout(v.r.Context(), kubeclient.ButtonTime)
	defer cancel()
	for _, namespace := range namespaces[:min(len(namespaces), kubeclient.MostReviewed)] {
		may, err := kubeclient.Allowed(ctx, c, authorizationv1.ResourceAttributes{Verb: "patch", Group: agentv1.GroupVersion.Group, Resource: "agents", Namespace: namespace})
		if may || err != nil { // one that is away is not asked again
			return may
		}
	}
	return false
}

// approve sets spec.approved of the Agent of a machine, with the person's rights. A dry run asks the API server for its answer and writes nothing.
func (v *visit) approve(m *machine, options ...client.PatchOption) error {
	if m.Resource.Namespace == "" || m.Approved {
		return &refusal{http.StatusConflict, t("approve.already")}
	}
	c, err := v.cluster()
	if err != nil {
		return err
	}
	agent, err := v.agentOf(c, m)
	if err != nil {
		return err
	}
	if agent.Spec.Approved {
		return &refusal{http.StatusConflict, t("approve.already")}
	}
	before := agent.DeepCopy()
	agent.Spec.Approved = true
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	return v.fromCluster(c.Patch(v.r.Context(), agent, patch, append(options, kubeclient.FieldOwner)...))
}

// agentOf reads the Agent of a machine, under the one of its names that an Agent of its InfraEnv has. Its errors are refusals.
func (v *visit) agentOf(c client.Client, m *machine) (*agentv1.Agent, error) {
	name, beside := domain.HostKey{InfraEnvID: m.InfraEnvID.String(), HostID: m.ID.String()}.AgentNames()
	for _, candidate := range []string{name, beside} {
		agent := &agentv1.Agent{}
		err := c.Get(v.r.Context(), client.ObjectKey{Namespace: m.Resource.Namespace, Name: candidate}, agent)
		if err != nil && !apierrors.IsNotFound(err) {
			return nil, v.fromCluster(err)
		}
		if err == nil && slices.ContainsFunc(agent.OwnerReferences, func(o metav1.OwnerReference) bool { return string(o.UID) == m.InfraEnvID.String() }) {
			return agent, nil
		}
	}
	return nil, &refusal{http.StatusNotFound, t("approve.missing")}
}
