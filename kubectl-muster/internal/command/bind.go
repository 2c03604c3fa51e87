// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package command

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	agentv1 "github.com/muster-io/muster/apis/agentinstall/v1beta1"
	hivev1 "github.com/muster-io/muster/apis/hive/v1"
)

// bindOptions are the flags of "bind".
type bindOptions struct {
	cluster, role string
	approve       bool
}

func (s *session) bind() *cobra.Command {
	o := &bindOptions{}
	c := &cobra.Command{
		Use:     "bind MACHINE... --cluster [NAMESPACE/]CLUSTERDEPLOYMENT",
		Short:   "Bind machines to a cluster; one that is bound is moved",
		Long:    "Bind machines to a cluster; one that is bound is moved. A machine is named by its Agent or by its host name.",
		Example: "  kubectl muster bind node-1 node-2 --cluster blue --role worker --approve",
		Args:    cobra.MinimumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			return s.runBind(c.Context(), args, o)
		},
		ValidArgsFunction: s.complete(&agentv1.AgentList{}, 0),
	}
	c.Flags().StringVar(&o.cluster, "cluster", "", "the ClusterDeployment, in the namespace of the machines unless another is named")
	c.Flags().StringVar(&o.role, "role", "", "master, worker, arbiter or auto-assign (default: as it is)")
	c.Flags().BoolVar(&o.approve, "approve", false, "approve the machines, so that they may be installed")
	_ = c.MarkFlagRequired("cluster")
	_ = c.RegisterFlagCompletionFunc("cluster", s.complete(&hivev1.ClusterDeploymentList{}, 0))
	return c
}

func (s *session) runBind(ctx context.Context, machines []string, o *bindOptions) error {
	c, err := s.client()
	if err != nil {
		return err
	}
	own, err := s.namespace()
	if err != nil {
		return err
	}
	namespace, name, other := strings.Cut(o.cluster, "/")
	if !other {
		namespace, name = own, o.cluster
	}
	key := client.ObjectKey{Namespace: namespace, Name: name}
	if err := c.Get(ctx, key, &hivev1.ClusterDeployment{}); err != nil {
		return fmt.Errorf("reading the cluster: %w", served(err, "agent-service"))
	}
	return s.change(ctx, c, machines, func(a *agentv1.Agent) string {
		a.Spec.ClusterDeploymentName = &agentv1.ClusterReference{Namespace: key.Namespace, Name: key.Name}
		a.Spec.Approved = a.Spec.Approved || o.approve
		if o.role != "" {
			a.Spec.Role = o.role
		}
		said := "is to be bound to " + key.String()
		if !a.Spec.Approved {
			said += "; it is not approved, so it is not installed (--approve)"
		}
		return said
	})
}

func (s *session) unbind() *cobra.Command {
	return &cobra.Command{
		Use:   "unbind MACHINE...",
		Short: "Free machines from their cluster",
		Args:  cobra.MinimumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			api, err := s.client()
			if err != nil {
				return err
			}
			return s.change(c.Context(), api, args, func(a *agentv1.Agent) string {
				a.Spec.ClusterDeploymentName = nil
				return "is to be freed"
			})
		},
		ValidArgsFunction: s.complete(&agentv1.AgentList{}, 0),
	}
}

// change edits the Agents of machines, after all of them were found. A change by others meanwhile is a conflict, which is reported.
func (s *session) change(ctx context.Context, c client.Client, machines []string, edit func(*agentv1.Agent) string) error {
	namespace, err := s.namespace()
	if err != nil {
		return err
	}
	agents, err := find(ctx, c, namespace, machines)
	if err != nil {
		return err
	}
	var failed error
	for i, a := range agents {
		before := a.DeepCopy()
		said := edit(a)
		if err := c.Patch(ctx, a, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
			failed = errors.Join(failed, fmt.Errorf("machine %s: %w", machines[i], err))
			continue
		}
		s.say("machine %s %s", machines[i], said)
	}
	return failed
}

// find returns the Agents that names mean: by the name of the Agent, or by the host name if only one Agent has it.
func find(ctx context.Context, c client.Reader, namespace string, names []string) ([]*agentv1.Agent, error) {
	found := make(map[string][]*agentv1.Agent)
	err := each(ctx, c, &agentv1.AgentList{}, namespace, func(obj client.Object) {
		a, _ := obj.(*agentv1.Agent)
		for _, name := range names {
			if a.Name == name || hostname(a) == name {
				found[name] = append(found[name], a.DeepCopy())
			}
		}
	})
	if err != nil {
		return nil, served(err, "agent-service")
	}
	var out []*agentv1.Agent
	for _, name := range names {
		a, err := one(name, namespace, found[name])
		if err != nil {
			return nil, err
		}
		out = append(out, a)
	}
	return out, nil
}

func one(name, namespace string, agents []*agentv1.Agent) (*agentv1.Agent, error) {
	if i := slices.IndexFunc(agents, func(a *agentv1.Agent) bool { return a.Name == name }); i >= 0 {
		return agents[i], nil
	}
	switch len(agents) {
	case 0:
		return nil, fmt.Errorf("no Agent in namespace %s has the name or the host name %q", namespace, name)
	case 1:
		return agents[0], nil
	}
	var candidates []string
	for _, a := range agents {
		candidates = append(candidates, a.Name)
	}
	return nil, fmt.Errorf("%d machines have the host name %q: name one of the Agents %s", len(agents), name, strings.Join(candidates, ", "))
}
