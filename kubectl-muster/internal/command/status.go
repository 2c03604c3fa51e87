// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package command

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	agentv1 "github.com/muster-io/muster/apis/agentinstall/v1beta1"
	hivev1 "github.com/muster-io/muster/apis/hive/v1"
	hiveextv1 "github.com/muster-io/muster/apis/hiveextensions/v1beta1"
	ipamv1 "github.com/muster-io/muster/apis/ipam/v1alpha1"
	metal3v1 "github.com/muster-io/muster/apis/metal3/v1alpha1"
	"github.com/muster-io/muster/kubectl-muster/internal/health"
)

// partOf marks the Deployments of all operators.
var partOf = client.MatchingLabels{"app.kubernetes.io/part-of": "muster"}

// report is what "status" says.
type report struct {
	Operators []operator       `json:"operators"`
	Problems  []health.Problem `json:"problems"`
	Counts    []kindCount      `json:"counts"`
	// LeftOut are kinds that could not be read, and why.
	LeftOut []string `json:"leftOut,omitempty"`
}

type operator struct {
	Name      string `json:"name"`
	Namespace string `json:"namespace"`
	Ready     int32  `json:"ready"`
	Replicas  int32  `json:"replicas"`
	Image     string `json:"image"`
}

type kindCount struct {
	Kind    string `json:"kind"`
	Objects int    `json:"objects"`
	Fine    int    `json:"fine"`
}

// watched are the kinds that "status" reads, in the order in which a machine becomes a cluster.
func watched() []struct {
	kind, operator string
	list           client.ObjectList
} {
	type kinds = []struct {
		kind, operator string
		list           client.ObjectList
	}
	return kinds{
		{"BareMetalHostDiscovery", "discovery-operator", &metal3v1.BareMetalHostDiscoveryList{}},
		{"BareMetalHost", "discovery-operator", &metal3v1.BareMetalHostList{}},
		{"InfraEnv", "agent-service", &agentv1.InfraEnvList{}},
		{"Agent", "agent-service", &agentv1.AgentList{}},
		{"AgentReservation", "agent-service", &agentv1.AgentReservationList{}},
		{"AgentClusterInstall", "agent-service", &hiveextv1.AgentClusterInstallList{}},
		{"IPPool", "ipam-operator", &ipamv1.IPPoolList{}},
		{"IPClaim", "ipam-operator", &ipamv1.IPClaimList{}},
		{"ClusterPool", "pool-operator", &hivev1.ClusterPoolList{}},
		{"ClusterDeployment", "pool-operator", &hivev1.ClusterDeploymentList{}},
		{"MachinePool", "deploy/crds/machine-pool", &hivev1.MachinePoolList{}},
		{"ClusterClaim", "pool-operator", &hivev1.ClusterClaimList{}},
	}
}

func (s *session) status() *cobra.Command {
	var output string
	var one bool
	c := &cobra.Command{
		Use:   "status",
		Short: "Show all operators on one screen: what is not fine first, and why",
		Long:  "Show all operators on one screen: what is not fine first, and why. Without rights in all namespaces, those of --namespace are shown.",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return s.runStatus(c.Context(), output, one || c.Flags().Changed("namespace"))
		},
	}
	c.Flags().StringVarP(&output, "output", "o", "", "json, or a screen if empty")
	c.Flags().BoolVar(&one, "this-namespace", false, "show the namespace of the kubeconfig's context only")
	return c
}

func (s *session) runStatus(ctx context.Context, output string, oneNamespace bool) error {
	if output != "" && output != "json" {
		return fmt.Errorf("there is no output %q: it is json, or empty", output)
	}
	c, err := s.client()
	if err != nil {
		return err
	}
	own, err := s.namespace()
	if err != nil {
		return err
	}
	scopes := []string{corev1.NamespaceAll, own}
	if oneNamespace {
		scopes = scopes[1:]
	}
	r := &report{Operators: []operator{}, Problems: []health.Problem{}, Counts: []kindCount{}}
	if err := r.operators(ctx, c); err != nil {
		return err
	}
	for _, k := range watched() {
		if err := r.read(ctx, c, k.kind, k.operator, k.list, scopes); err != nil {
			return err
		}
	}
	health.Sort(r.Problems)
	if output == "json" {
		encoder := json.NewEncoder(s.Out)
		encoder.SetIndent("", "  ")
		return encoder.Encode(r)
	}
	return r.print(s)
}

// operators reads the Deployments. One that is not whole is a problem of its own.
func (r *report) operators(ctx context.Context, c client.Reader) error {
	list := &appsv1.DeploymentList{}
	if err := c.List(ctx, list, partOf); apierrors.IsForbidden(err) {
		r.LeftOut = append(r.LeftOut, "operators: you may not list Deployments in all namespaces")
		return nil
	} else if err != nil {
		return err
	}
	for i := range list.Items {
		d := &list.Items[i]
		replicas := int32(1)
		if d.Spec.Replicas != nil {
			replicas = *d.Spec.Replicas
		}
		image := ""
		if containers := d.Spec.Template.Spec.Containers; len(containers) > 0 {
			image = containers[0].Image
		}
		r.Operators = append(r.Operators, operator{Name: d.Name, Namespace: d.Namespace, Ready: d.Status.ReadyReplicas, Replicas: replicas, Image: image})
		if d.Status.ReadyReplicas < replicas || replicas == 0 {
			r.Problems = append(r.Problems, health.Problem{
				Kind: "Deployment", Namespace: d.Namespace, Name: d.Name, Reason: "NotReady", Since: d.CreationTimestamp.Time,
				Message: fmt.Sprintf("%d of %d replicas are ready: kubectl -n %s describe deployment %s", d.Status.ReadyReplicas, replicas, d.Namespace, d.Name),
			})
		}
	}
	return nil
}

// read adds the objects of a kind, from the first scope that the user may list.
func (r *report) read(ctx context.Context, c client.Reader, kind, operator string, list client.ObjectList, scopes []string) error {
	var err error
	for _, scope := range scopes {
		counted, problems := kindCount{Kind: kind}, []health.Problem(nil)
		err = each(ctx, c, list, scope, func(obj client.Object) {
			counted.Objects++
			if of := health.Of(obj); of == nil {
				counted.Fine++
			} else {
				problems = append(problems, of...)
			}
		})
		if apierrors.IsForbidden(err) {
			continue
		}
		if err == nil {
			r.Counts, r.Problems = append(r.Counts, counted), append(r.Problems, problems...)
		}
		break
	}
	switch {
	case meta.IsNoMatchError(err):
		r.LeftOut = append(r.LeftOut, kind+": "+operator+" is not installed")
	case apierrors.IsForbidden(err):
		r.LeftOut = append(r.LeftOut, kind+": you may not list it")
	case ctx.Err() != nil:
		return err
	case err != nil:
		r.LeftOut = append(r.LeftOut, kind+": "+err.Error())
	}
	return nil
}

func (r *report) print(s *session) error {
	problems := &table{header: []string{"NOT FINE", "OBJECT", "SINCE", "REASON", "MESSAGE"}}
	for _, p := range r.Problems {
		object := p.Kind + " " + strings.TrimPrefix(p.Namespace+"/"+p.Name, "/")
		problems.add(p.Severity.String(), object, since(p.Since), p.Reason, p.Message)
	}
	if len(r.Problems) == 0 {
		s.say("Everything that was read is fine.")
	} else if err := problems.print(s.Out); err != nil {
		return err
	}
	operators := &table{header: []string{"OPERATOR", "NAMESPACE", "READY", "IMAGE"}}
	for _, o := range r.Operators {
		operators.add(o.Name, o.Namespace, fmt.Sprintf("%d/%d", o.Ready, o.Replicas), o.Image)
	}
	counts := &table{header: []string{"KIND", "OBJECTS", "FINE"}}
	for _, n := range r.Counts {
		counts.add(n.Kind, fmt.Sprint(n.Objects), fmt.Sprint(n.Fine))
	}
	for _, t := range []*table{operators, counts} {
		if len(t.rows) == 0 {
			continue
		}
		s.say("")
		if err := t.print(s.Out); err != nil {
			return err
		}
	}
	for _, left := range r.LeftOut {
		s.tell("left out: %s", left)
	}
	return nil
}
