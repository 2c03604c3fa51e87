// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package baremetalhostdiscovery

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	metal3v1 "github.com/muster-io/muster/apis/metal3/v1alpha1"
	"github.com/muster-io/muster/discovery-operator/internal/fleet"
	"github.com/muster-io/muster/discovery-operator/internal/handover"
	"github.com/muster-io/muster/discovery-operator/internal/inventory"
	"github.com/muster-io/muster/discovery-operator/internal/reservation"
)

// observation is what one pass works with.
type observation struct {
	discovery *metal3v1.BareMetalHostDiscovery
	snapshot  inventory.Snapshot
	self      inventory.Resource
	endpoint  string
	// view is nil when the resource may not look at the Ironic that it names.
	view   *fleet.View
	health fleet.Health
	memory *memory
	// creations is how many hosts the decision creates, created how many of them there are by now.
	creations int
	created   atomic.Int64
}

// memory is what a process remembers of a resource between passes. Losing it costs nothing but repetition.
type memory struct {
	// fresh says that no process has written a status of the resource before.
	fresh     bool
	limiter   *rate.Limiter
	perMinute int32
	// refused are the reasons that were reported for machines, by node.
	refused map[string]string
	// before is how many machines an earlier process refused for which reason, empty once everything was read that it may have read.
	before   map[string]int32
	compiled map[string]compiled
	// lacking are hosts without HardwareData, once they were listed.
	lacking []inventory.Host
	looked  bool
	// rule is the present rule of approval, judged what it has not approved.
	rule   string
	judged map[string]bool
	// waits says since when machines wait that are not listed yet, waited is inventory.Snapshot.Waited.
	waits, waited map[string]time.Time
}

// observe reads everything that the decision about a resource rests on.
func (r *Reconciler) observe(ctx context.Context, d *metal3v1.BareMetalHostDiscovery) (*observation, error) {
	o := &observation{discovery: d, memory: r.remember(d)}
	address := r.Sources.Address(d.Namespace, d.Spec.Ironic)
	o.endpoint = address.Endpoint
	now := r.now()
	o.snapshot = inventory.Snapshot{Now: now, Self: inventory.Ref{Namespace: d.Namespace, Name: d.Name}}
	o.snapshot.Tokens, o.snapshot.NextToken = o.memory.tokens(now)
	o.snapshot.Judged, o.snapshot.Waited = o.memory.judgements(d.Spec.ApprovalRule), o.memory.waited
	holder, err := r.resources(ctx, address, o)
	if err != nil {
		return nil, err
	}
	r.look(d, address, o, holder) //nolint:contextcheck // a poller outlives the pass that asks for it
	if o.snapshot.Hosts, err = r.hosts(ctx); err != nil {
		return nil, err
	}
	if o.snapshot.Reservations, err = r.ignored(ctx); err != nil {
		return nil, err
	}
	return o, nil
}

// look takes the machines that the resource may see from the poller of its Ironic. Where another namespace holds the Ironic, it sees none.
func (r *Reconciler) look(d *metal3v1.BareMetalHostDiscovery, a inventory.Address, o *observation, holder string) {
	name := o.snapshot.Self.String()
	if holder != "" {
		r.Fleets.Release(name)
		o.health = fleet.Health{Polled: true, Err: inventory.Failf(inventory.ProblemNotShared,
			"the machines of this Ironic are for namespace %s: one namespace has them, unless the administrator names those that share in --ironic-namespaces", holder)}
		o.snapshot.Frozen = true
		return
	}
	pace := fleet.Pace{News: 10 * time.Second, Full: 15 * time.Minute}
	if d.Spec.Interval != nil {
		pace.News = d.Spec.Interval.Duration
	}
	if d.Spec.ResyncInterval != nil {
		pace.Full = d.Spec.ResyncInterval.Duration
	}
	namespace, ref := d.Namespace, d.Spec.Ironic.DeepCopy()
	wake := &metal3v1.BareMetalHostDiscovery{}
	wake.Namespace, wake.Name = d.Namespace, d.Name
	o.view = r.Fleets.Use(name, a.View, a.Endpoint, fleet.Session{
		Key: a.Session, Unverified: a.Unverified,
		Connect: func(ctx context.Context) (fleet.Source, error) { return r.Sources.Source(ctx, namespace, ref) },
	}, pace, func() { r.wake <- event.TypedGenericEvent[*metal3v1.BareMetalHostDiscovery]{Object: wake} })
	o.health = o.view.Health()
	o.snapshot.Machines, o.snapshot.Looked = o.view.Machines(), time.Now()
	o.snapshot.Left = r.lately(o.snapshot.Looked)
	o.snapshot.Partial = o.health.Partial
	o.snapshot.Frozen = o.health.Err != nil || o.unread()
}

// leaves notes that a host is being deleted, or is gone: what Ironic said of its node before is no reason to make it again.
func (r *Reconciler) leaves(host client.Object, gone bool) {
	h, ok := host.(*metal3v1.BareMetalHost)
	if !ok || h.DeletionTimestamp == nil && !gone {
		return
	}
	node := hostOf(h).NodeID
	if node == "" {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.left[node] = time.Now(); !gone {
		r.left[node] = r.left[node].Add(longestDeletion)
	}
}

// longestDeletion is for how long the node of a host that is being deleted is asked for before a host is made of it. The end of the deletion ends it.
const longestDeletion = 24 * time.Hour

// lately returns when hosts left, without those who left so long ago that what Ironic said before is too old anyway.
func (r *Reconciler) lately(now time.Time) map[string]time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	maps.DeleteFunc(r.left, func(_ string, at time.Time) bool { return now.Sub(at) > inventory.FreshTime })
	return maps.Clone(r.left)
}

func (r *Reconciler) remember(d *metal3v1.BareMetalHostDiscovery) *memory {
	r.mu.Lock()
	defer r.mu.Unlock()
	ref := inventory.Ref{Namespace: d.Namespace, Name: d.Name}
	m := r.memory[ref]
	if m == nil {
		m = &memory{fresh: len(d.Status.Conditions) == 0, refused: map[string]string{}, compiled: map[string]compiled{}}
		r.memory[ref] = m
	}
	perMinute := d.Spec.RateLimit.HostsPerMinute
	if perMinute == 0 {
		perMinute = 1200
	}
	if m.perMinute != perMinute {
		m.perMinute = perMinute
		// Ten seconds' worth may be created at once, so that a rack that is switched on is not taken in drop by drop.
		m.limiter = rate.NewLimiter(rate.Limit(float64(perMinute)/60), max(1, int(perMinute)/6))
	}
	return m
}

func (m *memory) tokens(now time.Time) (int, time.Duration) {
	tokens := m.limiter.TokensAt(now)
	missing := 1 - tokens
	if missing < 0 {
		missing = 1
	}
	return int(tokens), max(time.Duration(missing/float64(m.limiter.Limit())*float64(time.Second)), 100*time.Millisecond)
}

// judgements are those of the present rule of approval.
func (m *memory) judgements(rule string) map[string]bool {
	if m.rule != rule || m.judged == nil {
		m.rule, m.judged = rule, map[string]bool{}
	}
	return m.judged
}

// resources finds those that see the same machines and may take them, this one among them. It returns the namespace that has them
// instead, if another one does.
func (r *Reconciler) resources(ctx context.Context, self inventory.Address, o *observation) (holder string, err error) {
	var list metal3v1.BareMetalHostDiscoveryList
	if err := r.Client.List(ctx, &list); err != nil {
		return "", fmt.Errorf("listing BareMetalHostDiscoveries: %w", err)
	}
	var asking []inventory.Resource
	views := map[inventory.Ref]string{}
	for i := range list.Items {
		d := &list.Items[i]
		a := r.Sources.Address(d.Namespace, d.Spec.Ironic)
		ref := inventory.Ref{Namespace: d.Namespace, Name: d.Name}
		if a.Ironic != self.Ironic || Refused(d) && ref != o.snapshot.Self {
			continue
		}
		res := o.memory.resource(d)
		res.Shared = a.Shared
		if ref == o.snapshot.Self {
			o.self = res
		}
		views[ref] = a.View
		asking = append(asking, res)
	}
	admitted := inventory.Admitted(asking)
	if !slices.ContainsFunc(admitted, func(r inventory.Resource) bool { return r.Ref == o.snapshot.Self }) {
		o.snapshot.Resources = []inventory.Resource{o.self}
		if len(admitted) > 0 {
			holder = admitted[0].Namespace
		}
		return holder, nil
	}
	o.snapshot.Resources = slices.DeleteFunc(admitted, func(r inventory.Resource) bool { return views[r.Ref] != self.View })
	return "", nil
}

// Refused reports whether a resource does not come into its Ironic for a reason of its own, so that it does not block other resources.
func Refused(d *metal3v1.BareMetalHostDiscovery) bool {
	c := meta.FindStatusCondition(d.Status.Conditions, metal3v1.ConditionEndpointReady)
	if c == nil || c.Status != metav1.ConditionFalse || c.ObservedGeneration != d.Generation {
		return false
	}
	switch c.Reason {
	case metal3v1.ReasonCredentialsRefused, metal3v1.ReasonCredentialsMissing, metal3v1.ReasonEndpointMissing:
		return true
	default:
		return false
	}
}

// hosts are all BareMetalHosts of the cluster.
func (r *Reconciler) hosts(ctx context.Context) ([]inventory.Host, error) {
	var list metal3v1.BareMetalHostList
	if err := r.Client.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing BareMetalHosts: %w", err)
	}
	out := make([]inventory.Host, 0, len(list.Items))
	for i := range list.Items {
		h := hostOf(&list.Items[i])
		if !r.ManageHosts {
			h.Driver, h.Since = driven(&list.Items[i])
		}
		out = append(out, h)
	}
	return out, nil
}

// driven is the driver that the node of a host has to have, and since when: since a user registered the host, or since it was handed over. Before
// that, none is needed.
func driven(h *metal3v1.BareMetalHost) (driver string, since time.Time) {
	if h.Spec.BMC == nil || h.Spec.BMC.Address == "" {
		return "", since
	}
	since = h.CreationTimestamp.Time
	if h.Labels[metal3v1.DiscoveredByLabel] != "" {
		c := meta.FindStatusCondition(h.Status.Conditions, metal3v1.ConditionHandedOver)
		if c == nil || c.Status != metav1.ConditionTrue {
			return "", since
		}
		since = c.LastTransitionTime.Time
	}
	driver, _ = handover.Driver(h.Spec.BMC.Address)
	return driver, since
}

// hostOf is what matters of a host. The object is shared with the cache and is not changed.
func hostOf(h *metal3v1.BareMetalHost) inventory.Host {
	out := inventory.Host{
		Ref: inventory.Ref{Namespace: h.Namespace, Name: h.Name}, UID: string(h.UID), Created: h.CreationTimestamp.Time, NodeID: h.Status.Provisioning.ID,
		BootMAC: strings.ToLower(h.Spec.BootMACAddress), MACs: h.MACAddresses(), Resource: h.Labels[metal3v1.DiscoveredByLabel],
		Held:       h.Annotations[metal3v1.PausedAnnotation] == metal3v1.DiscoveryPausedValue || unused(h),
		Unapproved: h.Labels[metal3v1.ApprovalLabel] == "pending" && h.Annotations[metal3v1.ApprovedAnnotation] != "true",
		HasStatus:  h.HasStatus(), Going: h.DeletionTimestamp != nil,
	}
	if out.NodeID == "" && !h.Detached() { // the node of a detached host is not lost, it was removed
		out.NodeID = h.Annotations[metal3v1.NodeAnnotation]
	}
	if h.Annotations[metal3v1.PausedAnnotation] == metal3v1.DiscoveryPausedValue {
		out.LastSeen = cmp.Or(h.Annotations[metal3v1.LastSeenAnnotation], "unknown")
	}
	out.Lost = meta.IsStatusConditionFalse(h.Status.Conditions, metal3v1.ConditionNodePresent)
	out.Serial = h.Annotations[metal3v1.SerialAnnotation]
	if h.Status.HardwareDetails != nil {
		out.Serial = inventory.NormalSerial(h.Status.HardwareDetails.SystemVendor.SerialNumber)
	}
	if h.Spec.BMC != nil && h.Spec.BMC.Address != "" {
		out.BMC, out.BMCKey = inventory.NormalBMC(h.Spec.BMC.Address), inventory.BMCKey(h.Spec.BMC.Address)
	} else if reported := h.Annotations[metal3v1.BMCAnnotation]; reported != "" {
		out.BMC = inventory.NormalBMC(reported)
	}
	return out
}

// unused reports whether this operator manages the host and it has no consumer yet, so that a machine that comes back as another node can be
// written to it.
func unused(h *metal3v1.BareMetalHost) bool {
	c := meta.FindStatusCondition(h.Status.Conditions, metal3v1.ConditionHandedOver)
	return c != nil && c.Reason == metal3v1.ReasonManagedHere && !h.HasPowerControl() && !h.InUse()
}

// ignored are the boot MACs that are kept away.
func (r *Reconciler) ignored(ctx context.Context) (map[string]inventory.Reservation, error) {
	var list coordinationv1.LeaseList
	err := r.Client.List(ctx, &list, client.InNamespace(r.Namespace), client.MatchingLabels{metal3v1.IgnoredLabel: "true"})
	if err != nil {
		return nil, fmt.Errorf("listing reservations: %w", err)
	}
	out := make(map[string]inventory.Reservation, len(list.Items))
	for i := range list.Items {
		if mac := reservation.MAC(list.Items[i].Name); mac != "" {
			out[mac] = inventory.Reservation{Ignored: true}
		}
	}
	return out, nil
}
