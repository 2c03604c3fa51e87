// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package command

import (
	"cmp"
	"context"
	"net/netip"
	"slices"
	"strconv"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/controller-runtime/pkg/client"

	agentv1 "github.com/muster-io/muster/apis/agentinstall/v1beta1"
	hivev1 "github.com/muster-io/muster/apis/hive/v1"
	ipamv1 "github.com/muster-io/muster/apis/ipam/v1alpha1"
	metal3v1 "github.com/muster-io/muster/apis/metal3/v1alpha1"
	"github.com/muster-io/muster/kubectl-muster/internal/health"
)

func (s *session) pools() *cobra.Command {
	return s.listFlags(&cobra.Command{
		Use:   "pools",
		Short: "List pools of clusters: how many are ready, and what keeps them from being full",
		Args:  cobra.NoArgs,
		RunE:  func(c *cobra.Command, _ []string) error { return s.runPools(c.Context()) },
	})
}

func (s *session) runPools(ctx context.Context) error {
	t := &table{header: []string{"NAMESPACE", "POOL", "READY", "STANDBY", "INSTALLING", "BROKEN", "CLAIMED", "WAITING", "STATE", "MESSAGE"}}
	err := s.rows(ctx, t, "pool-operator", &hivev1.ClusterPoolList{}, func(obj client.Object) []string {
		p, _ := obj.(*hivev1.ClusterPool)
		state, message := "", ""
		if ready := hivev1.FindCondition(p.Status.Conditions, hivev1.ClusterPoolReady); ready != nil {
			state = ready.Reason
			if ready.Status != corev1.ConditionTrue {
				message = ready.Message
			}
		}
		st := &p.Status
		return []string{
			p.Namespace, p.Name, count(st.Ready), count(st.Standby), count(st.Installing), count(st.Broken), count(st.Claimed), count(st.PendingClaims), state, message,
		}
	})
	if err != nil {
		return err
	}
	return s.print(t, "no pools of clusters")
}

// rows fills a table with a row for each object of a list's kind.
func (s *session) rows(ctx context.Context, t *table, operator string, list client.ObjectList, row func(client.Object) []string) error {
	c, err := s.client()
	if err != nil {
		return err
	}
	namespace, err := s.scope()
	if err != nil {
		return err
	}
	return served(each(ctx, c, list, namespace, func(obj client.Object) { t.add(row(obj)...) }), operator)
}

func (s *session) print(t *table, none string) error {
	if len(t.rows) == 0 {
		s.tell("%s", none)
		return nil
	}
	return t.print(s.Out)
}

func count(n int32) string { return strconv.Itoa(int(n)) }

func (s *session) hosts() *cobra.Command {
	return s.listFlags(&cobra.Command{
		Use:   "hosts",
		Short: "List machines: those that agent-service knows (Agents), and BareMetalHosts",
		Args:  cobra.NoArgs,
		RunE:  func(c *cobra.Command, _ []string) error { return s.runHosts(c.Context()) },
	})
}

func (s *session) runHosts(ctx context.Context) error {
	t := &table{header: []string{"NAMESPACE", "MACHINE", "KIND", "STATE", "CLUSTER", "CPUS", "MEMORY", "AGE", "PROBLEM"}}
	agents := s.rows(ctx, t, "agent-service", &agentv1.AgentList{}, func(obj client.Object) []string {
		a, _ := obj.(*agentv1.Agent)
		cluster := ""
		if ref := a.Spec.ClusterDeploymentName; ref != nil {
			cluster = ref.Namespace + "/" + ref.Name
		}
		i := &a.Status.Inventory
		return []string{
			a.Namespace, hostname(a), "Agent", a.Status.DebugInfo.State, cluster, number(i.CPU.Count), size(i.Memory.PhysicalBytes), since(a.CreationTimestamp.Time), first(a),
		}
	})
	hosts := s.rows(ctx, t, "discovery-operator", &metal3v1.BareMetalHostList{}, func(obj client.Object) []string {
		h, _ := obj.(*metal3v1.BareMetalHost)
		consumer, cpus, memory := "", int64(0), int64(0)
		if ref := h.Spec.ConsumerRef; ref != nil {
			consumer = ref.Namespace + "/" + ref.Name
		}
		if d := h.Status.HardwareDetails; d != nil {
			cpus, memory = int64(d.CPU.Count), int64(d.RAMMebibytes)<<20
		}
		return []string{
			h.Namespace, h.Name, "BareMetalHost", string(h.Status.Provisioning.State), consumer, number(cpus), size(memory), since(h.CreationTimestamp.Time), first(h),
		}
	})
	if agents != nil && hosts != nil {
		return agents // either operator may be absent, not both
	}
	for _, err := range []error{agents, hosts} {
		if err != nil {
			s.tell("left out: %v", err)
		}
	}
	slices.SortStableFunc(t.rows, func(a, b []string) int { return cmp.Or(cmp.Compare(a[0], b[0]), cmp.Compare(a[1], b[1])) })
	return s.print(t, "no machines")
}

// hostname is the name that people know a machine by.
func hostname(a *agentv1.Agent) string {
	return cmp.Or(a.Spec.Hostname, a.Status.Inventory.Hostname, a.Name)
}

// first is the first problem of an object in a sentence.
func first(obj client.Object) string {
	if problems := health.Of(obj); len(problems) > 0 {
		return problems[0].Message
	}
	return ""
}

func number(n int64) string {
	if n == 0 {
		return ""
	}
	return strconv.FormatInt(n, 10)
}

func size(bytes int64) string {
	if bytes == 0 {
		return ""
	}
	const gibibyte = 1 << 30
	return resource.NewQuantity((bytes+gibibyte/2)/gibibyte*gibibyte, resource.BinarySI).String()
}

func (s *session) ips() *cobra.Command {
	return s.listFlags(&cobra.Command{
		Use:               "ips [POOL]",
		Short:             "List pools of addresses, or the addresses of one and who has them",
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: s.complete(&ipamv1.IPPoolList{}, 1),
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) == 1 {
				return s.runAddresses(c.Context(), args[0])
			}
			return s.runAddressPools(c.Context())
		},
	})
}

func (s *session) runAddressPools(ctx context.Context) error {
	t := &table{header: []string{"NAMESPACE", "POOL", "TOTAL", "USED", "FREE", "OUTOFRANGE", "STATE", "MESSAGE"}}
	err := s.rows(ctx, t, "ipam-operator", &ipamv1.IPPoolList{}, func(obj client.Object) []string {
		p, _ := obj.(*ipamv1.IPPool)
		state := ""
		if ready := meta.FindStatusCondition(p.Status.Conditions, ipamv1.ReadyCondition); ready != nil {
			state = ready.Reason
		}
		return []string{p.Namespace, p.Name, amount(p.Status.Total), amount(p.Status.Used), amount(p.Status.Free), amount(p.Status.OutOfRange), state, first(p)}
	})
	if err != nil {
		return err
	}
	return s.print(t, "no pools of addresses")
}

func amount(n *int64) string {
	const more = 1<<63 - 1 // a count that stands for any greater one
	switch {
	case n == nil:
		return ""
	case *n == more:
		return "2^63+"
	}
	return strconv.FormatInt(*n, 10)
}

func (s *session) runAddresses(ctx context.Context, pool string) error {
	c, err := s.client()
	if err != nil {
		return err
	}
	namespace, err := s.namespace()
	if err != nil {
		return err
	}
	if err := c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: pool}, &ipamv1.IPPool{}); err != nil {
		return served(err, "ipam-operator")
	}
	var found []*ipamv1.IPAddress
	err = each(ctx, c, &ipamv1.IPAddressList{}, namespace, func(obj client.Object) {
		if a, _ := obj.(*ipamv1.IPAddress); a != nil && a.Spec.Pool.Name == pool {
			found = append(found, a)
		}
	})
	if err != nil {
		return err
	}
	slices.SortFunc(found, func(a, b *ipamv1.IPAddress) int { return address(a).Compare(address(b)) })
	t := &table{header: []string{"ADDRESS", "PREFIX", "GATEWAY", "CLAIM", "KIND", "AGE"}}
	for _, a := range found {
		gateway := ""
		if a.Spec.Gateway != nil {
			gateway = string(*a.Spec.Gateway)
		}
		taken := string(a.Spec.Address)
		if a.Spec.PrefixLength > 0 { // the first address of a prefix that is taken as a whole
			taken += "/" + strconv.Itoa(a.Spec.PrefixLength)
		}
		t.add(taken, strconv.Itoa(a.Spec.Prefix), gateway, a.ClaimInPool(), cmp.Or(a.Spec.Claim.Kind, ipamv1.IPClaimKind), since(a.CreationTimestamp.Time))
	}
	return s.print(t, "no address of the pool "+pool+" is in use")
}

func address(a *ipamv1.IPAddress) netip.Addr {
	parsed, _ := netip.ParseAddr(string(a.Spec.Address))
	return parsed
}
