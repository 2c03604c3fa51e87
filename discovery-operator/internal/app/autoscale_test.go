// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/fstest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/muster-io/muster/apis/controlplanetest"
	metal3v1 "github.com/muster-io/muster/apis/metal3/v1alpha1"
	"github.com/muster-io/muster/discovery-operator/internal/controller/autoscale"
	"github.com/muster-io/muster/discovery-operator/internal/scaleplan"
)

// clusterAPI are the kinds of Cluster API as far as this operator looks at them, with the scale subresources that they have.
func clusterAPI(versions ...string) fstest.MapFS {
	out := fstest.MapFS{}
	for _, k := range []struct{ group, kind, scale string }{
		{"cluster.x-k8s.io", "Cluster", ""},
		{"cluster.x-k8s.io", "Machine", ""},
		{"cluster.x-k8s.io", "MachineSet", "{specReplicasPath: .spec.replicas, statusReplicasPath: .status.replicas, labelSelectorPath: .status.selector}"},
		{"cluster.x-k8s.io", "MachineDeployment", "{specReplicasPath: .spec.replicas, statusReplicasPath: .status.replicas, labelSelectorPath: .status.selector}"},
		{"infrastructure.cluster.x-k8s.io", "Metal3MachineTemplate", ""},
	} {
		plural := strings.ToLower(k.kind) + "s"
		text := fmt.Sprintf(`
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: %[1]s.%[2]s}
spec:
  group: %[2]s
  names: {kind: %[3]s, listKind: %[3]sList, plural: %[1]s, singular: %[4]s}
  scope: Namespaced
  versions:
`, plural, k.group, k.kind, strings.ToLower(k.kind))
		for i, version := range versions {
			text += fmt.Sprintf("  - name: %s\n    served: true\n    storage: %t\n", version, i == 0) +
				"    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}\n"
			if k.scale != "" {
				text += "    subresources: {scale: " + k.scale + "}\n"
			}
		}
		out[plural+".yaml"] = &fstest.MapFile{Data: []byte(text)}
	}
	return out
}

// machinery is a namespace with a Cluster, and with hosts that machines can have.
type machinery struct {
	*testEnv
	version string
}

// newMachinery adds to an environment a Cluster and a template that wants workers.
func newMachinery(w *testEnv, version string) *machinery {
	m := &machinery{testEnv: w, version: version}
	m.bindComponent()
	m.make("Cluster", "c", map[string]any{"paused": false})
	m.make("Metal3MachineTemplate", "workers", map[string]any{"template": map[string]any{"spec": map[string]any{"hostSelector": map[string]any{
		"matchLabels":      map[string]any{"role": "worker"},
		"matchExpressions": []any{map[string]any{"key": "quarantine", "operator": "DoesNotExist"}},
	}}}})
	return m
}

// bindComponent gives the operators of this test the rights of the component.
func (m *machinery) bindComponent() {
	data, err := os.ReadFile(filepath.Join("..", "..", "..", "deploy", "components", "autoscale-to-hosts", "role.yaml"))
	require.NoError(m, err)
	role := &rbacv1.ClusterRole{}
	require.NoError(m, yaml.UnmarshalStrict(data, role))
	role.Name = m.system + "-autoscale"
	require.NoError(m, m.Create(m.Context(), role))
	require.NoError(m, m.Create(m.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: role.Name},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: m.system, Name: "discovery-operator"}},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
	}))
}

func (m *machinery) object(kind, name string) *unstructured.Unstructured {
	group := "cluster.x-k8s.io"
	if strings.HasPrefix(kind, "Metal3") {
		group = "infrastructure.cluster.x-k8s.io"
	}
	u := &unstructured.Unstructured{Object: map[string]any{}}
	u.SetGroupVersionKind(schema.GroupVersionKind{Group: group, Version: m.version, Kind: kind})
	u.SetNamespace(m.ns)
	u.SetName(name)
	return u
}

func (m *machinery) make(kind, name string, spec map[string]any, change ...func(*unstructured.Unstructured)) *unstructured.Unstructured {
	m.Helper()
	u := m.object(kind, name)
	u.Object["spec"] = spec
	for _, c := range change {
		c(u)
	}
	require.NoError(m, m.Create(m.Context(), u))
	return u
}

// infrastructure is a reference in the form of the version.
func (m *machinery) infrastructure(kind, name string) map[string]any {
	if m.version == "v1beta1" {
		return map[string]any{"apiVersion": "infrastructure.cluster.x-k8s.io/v1beta1", "kind": kind, "name": name, "namespace": m.ns}
	}
	return map[string]any{"apiGroup": "infrastructure.cluster.x-k8s.io", "kind": kind, "name": name}
}

// set makes a MachineDeployment or MachineSet with no replicas that follows hosts.
func (m *machinery) set(kind, name string, change ...func(*unstructured.Unstructured)) *unstructured.Unstructured {
	m.Helper()
	follow := func(u *unstructured.Unstructured) { u.SetAnnotations(map[string]string{autoscale.Annotation: ""}) }
	return m.make(kind, name, map[string]any{
		"replicas": int64(0), "clusterName": "c",
		"template": map[string]any{"spec": map[string]any{"infrastructureRef": m.infrastructure("Metal3MachineTemplate", "workers")}},
	}, append([]func(*unstructured.Unstructured){follow}, change...)...)
}

func ownedBy(owner *unstructured.Unstructured) func(*unstructured.Unstructured) {
	return func(u *unstructured.Unstructured) {
		u.SetOwnerReferences([]metav1.OwnerReference{{
			APIVersion: owner.GetAPIVersion(), Kind: owner.GetKind(), Name: owner.GetName(), UID: owner.GetUID(), Controller: new(true),
		}})
	}
}

// machine makes a machine of a MachineSet, with a healthy node or without any.
func (m *machinery) machine(name string, set *unstructured.Unstructured, node bool) *unstructured.Unstructured {
	m.Helper()
	return m.make("Machine", name, map[string]any{"infrastructureRef": m.infrastructure("Metal3Machine", name)}, ownedBy(set),
		func(u *unstructured.Unstructured) {
			if node {
				u.Object["status"] = map[string]any{"nodeRef": map[string]any{"name": name}, "conditions": []any{
					map[string]any{"type": "NodeHealthy", "status": "True"},
				}}
			}
		})
}

// bmh makes a free host.
func (m *machinery) bmh(name string, state metal3v1.ProvisioningState, role string) *metal3v1.BareMetalHost {
	m.Helper()
	h := &metal3v1.BareMetalHost{ObjectMeta: metav1.ObjectMeta{Namespace: m.ns, Name: name, Labels: map[string]string{"role": role}}}
	require.NoError(m, m.Create(m.Context(), h))
	h.Status.Provisioning.State = state
	require.NoError(m, m.Status().Update(m.Context(), h))
	return h
}

// consume gives a host to a machine, or, without name, takes it back.
func (m *machinery) consume(h *metal3v1.BareMetalHost, machine string) {
	m.Helper()
	patch := `{"spec":{"consumerRef":null}}`
	if machine != "" {
		patch = fmt.Sprintf(`{"spec":{"consumerRef":{"apiVersion":"infrastructure.cluster.x-k8s.io/v1beta1","kind":"Metal3Machine","name":%q,"namespace":%q}}}`, machine, m.ns)
	}
	require.NoError(m, m.Patch(m.Context(), h, client.RawPatch(types.MergePatchType, []byte(patch))))
	if machine != "" {
		m.state(h, metal3v1.StateProvisioned)
	}
}

func (m *machinery) state(h *metal3v1.BareMetalHost, state metal3v1.ProvisioningState) {
	m.Helper()
	patch := fmt.Sprintf(`{"status":{"provisioning":{"state":%q}}}`, state)
	require.NoError(m, m.Status().Patch(m.Context(), h, client.RawPatch(types.MergePatchType, []byte(patch))))
}

func (m *machinery) change(o client.Object, patch string) {
	m.Helper()
	require.NoError(m, m.Patch(m.Context(), o, client.RawPatch(types.MergePatchType, []byte(patch))))
}

func (m *machinery) replicas(set *unstructured.Unstructured) int64 {
	got := m.object(set.GetKind(), set.GetName())
	require.NoError(m, m.Get(m.Context(), client.ObjectKeyFromObject(set), got))
	n, _, _ := unstructured.NestedInt64(got.Object, "spec", "replicas")
	return n
}

func (m *machinery) scaled(set *unstructured.Unstructured, n int64) {
	m.Helper()
	var last int64
	ok := waitFor(patience, func() bool { last = m.replicas(set); return last == n })
	require.True(m, ok, "%s %s has %d replicas, not %d", set.GetKind(), set.GetName(), last, n)
}

// settled waits until the operators have seen whatever happened before: a host that comes now has all sets looked at after all
// that was due, and a set of each kind wants just that host. Sets are looked at side by side, hence a second round. It returns how
// often it had sets scaled.
func (m *machinery) settled() (writes int64) {
	m.Helper()
	for range 2 {
		name := fmt.Sprintf("witness-%d", time.Now().UnixNano())
		template := m.make("Metal3MachineTemplate", name, map[string]any{"template": map[string]any{"spec": map[string]any{"hostSelector": map[string]any{
			"matchLabels": map[string]any{"role": name},
		}}}})
		wants := func(u *unstructured.Unstructured) {
			require.NoError(m, unstructured.SetNestedMap(u.Object, m.infrastructure("Metal3MachineTemplate", name), "spec", "template", "spec", "infrastructureRef"))
		}
		sets := []*unstructured.Unstructured{m.set("MachineSet", name, wants), m.set("MachineDeployment", name, wants)}
		h := m.bmh(name, metal3v1.StateAvailable, name)
		for _, set := range sets {
			m.scaled(set, 1)
			require.NoError(m, m.Delete(m.Context(), set))
			writes++
		}
		require.NoError(m, m.Delete(m.Context(), h))
		require.NoError(m, m.Delete(m.Context(), template))
	}
	return writes
}

// hasEvent waits for an event about a set.
func (m *machinery) hasEvent(set *unstructured.Unstructured, reason, note string) {
	m.Helper()
	var seen []string
	ok := waitFor(patience, func() bool {
		var list eventsv1.EventList
		assert.NoError(m, m.List(m.Context(), &list, client.InNamespace(m.ns)))
		seen = nil
		for i := range list.Items {
			e := &list.Items[i]
			if e.Regarding.UID == set.GetUID() {
				seen = append(seen, e.Reason+": "+e.Note)
				if e.Reason == reason && e.Note == note {
					return true
				}
			}
		}
		return false
	})
	require.True(m, ok, "there are %q", seen)
}

// follow starts an operator that lets sets follow hosts.
func (m *machinery) follow() { m.operate(func(o *setup) { o.AutoscaleToHosts = true }) }

// scales counts writes of scales, and the answers to them by status.
type scales struct {
	http.RoundTripper
	begun, done, refused *atomic.Int64
	// before is called before a write.
	before func()
}

func (s scales) RoundTrip(req *http.Request) (*http.Response, error) {
	scale := strings.HasSuffix(req.URL.Path, "/scale")
	if scale {
		s.begun.Add(1)
		if s.before != nil {
			s.before()
		}
	}
	resp, err := s.RoundTripper.RoundTrip(req)
	if scale && err == nil {
		switch resp.StatusCode {
		case http.StatusOK:
			s.done.Add(1)
		case http.StatusConflict:
			s.refused.Add(1)
		}
	}
	return resp, err
}

// unrefused is how many writes there were. Those that met a newer version are tried again, and do not count.
func (s *scales) unrefused() int64 { return s.begun.Load() - s.refused.Load() }

func (m *machinery) count(before func()) *scales {
	s := &scales{begun: &atomic.Int64{}, done: &atomic.Int64{}, refused: &atomic.Int64{}, before: before}
	m.wrap = append(m.wrap, func(next http.RoundTripper) http.RoundTripper {
		one := *s
		one.RoundTripper = next
		return one
	})
	return s
}

// TestSetsFollowHosts begins without Cluster API, has its older version installed, then the newer one.
func TestSetsFollowHosts(t *testing.T) {
	w := newTestEnv(t)
	early := &machinery{testEnv: w, version: "v1beta1"}
	early.bindComponent()
	w.operate(func(o *setup) { o.AutoscaleToHosts = true })
	w.enrol(1)
	w.discover("all")
	w.host("node-00001") // the operator does all else while it waits for Cluster API

	controlplanetest.Start(t, controlplanetest.WithCRDs(clusterAPI("v1beta1")))
	m := &machinery{testEnv: w, version: "v1beta1"}
	m.make("Cluster", "c", map[string]any{})
	m.make("Metal3MachineTemplate", "workers", map[string]any{"template": map[string]any{"spec": map[string]any{"hostSelector": map[string]any{
		"matchLabels": map[string]any{"role": "worker"},
	}}}})
	set := m.set("MachineDeployment", "old")
	h := m.bmh("h1", metal3v1.StateAvailable, "worker")
	m.bmh("h2", metal3v1.StateAvailable, "storage")
	m.scaled(set, 1)
	of := m.make("MachineSet", "old-1", map[string]any{}, ownedBy(set))
	m.machine("a", of, true)
	m.consume(h, "a")
	m.bmh("h3", metal3v1.StateAvailable, "worker")
	m.scaled(set, 2)

	m.upgrade()
	for name, test := range map[string]func(*testing.T){
		"the life of hosts":          testLifeOfHosts,
		"a MachineSet alone":         testMachineSetAlone,
		"another client scales":      testConcurrentScaling,
		"obstacles of a set":         testWhatHoldsASetUp,
		"work grows with changes":    testWorkGrowsWithChanges,
		"a machine replaces another": testAMachineReplacesAnother,
	} {
		t.Run(name, test)
	}
}

// upgrade makes the API server prefer the newer version.
func (m *machinery) upgrade() {
	m.Helper()
	for _, file := range clusterAPI("v1beta2", "v1beta1") {
		definition := &unstructured.Unstructured{}
		require.NoError(m, yaml.Unmarshal(file.Data, &definition.Object))
		patch, err := yaml.YAMLToJSON(file.Data)
		require.NoError(m, err)
		require.NoError(m, m.Patch(m.Context(), definition, client.RawPatch(types.MergePatchType, patch)))
	}
	m.eventually("the newer version is served", func() bool {
		c, err := client.New(m.config, client.Options{})
		if err != nil {
			return false
		}
		for _, kind := range []schema.GroupKind{
			{Group: "cluster.x-k8s.io", Kind: "MachineDeployment"}, {Group: "cluster.x-k8s.io", Kind: "MachineSet"},
			{Group: "cluster.x-k8s.io", Kind: "Machine"}, {Group: "cluster.x-k8s.io", Kind: "Cluster"},
			{Group: "infrastructure.cluster.x-k8s.io", Kind: "Metal3MachineTemplate"},
		} {
			if mapping, err := c.RESTMapper().RESTMapping(kind); err != nil || mapping.GroupVersionKind.Version != "v1beta2" {
				return false
			}
		}
		return true
	})
}

// Two operators at once, no leader: hosts appear, are prepared, used, and go.
func testLifeOfHosts(t *testing.T) {
	m := newMachinery(newTestEnv(t), "v1beta2")
	m.follow()
	m.follow()
	set := m.set("MachineDeployment", "d", func(u *unstructured.Unstructured) { u.SetAnnotations(map[string]string{autoscale.Annotation: "true"}) })
	of := m.make("MachineSet", "d-1", map[string]any{"replicas": int64(0)}, ownedBy(set))

	coming := m.bmh("h1", metal3v1.StateInspecting, "worker")
	spare := m.bmh("spare", metal3v1.StateInspecting, "worker")
	m.change(spare, `{"metadata":{"labels":{"quarantine":"yes"}}}`)
	m.state(spare, metal3v1.StateAvailable)
	used := m.bmh("h2", metal3v1.StateAvailable, "worker")
	m.scaled(set, 1)
	m.state(coming, metal3v1.StateAvailable)
	m.scaled(set, 2)
	m.hasEvent(set, autoscale.EventScaled, "Scaled from 1 to 2: its machines have 0 hosts, and 2 more that match are available.")

	m.machine("a", of, true)
	b := m.machine("b", of, false)
	m.consume(used, "a")
	m.change(used, `{"metadata":{"labels":{"role":"other"}}}`)
	m.settled()
	assert.Equal(t, int64(2), m.replicas(set), "a host that is used is counted whatever its labels say")

	require.NoError(t, m.Delete(t.Context(), coming))
	m.scaled(set, 1)
	m.hasEvent(set, autoscale.EventScaled, "Scaled from 2 to 1: its machines have 1 host, and no other that matches is available.")
	require.NoError(t, m.Delete(t.Context(), b))
	m.settled()
	assert.Equal(t, int64(1), m.replicas(set))

	m.change(spare, `{"metadata":{"labels":{"quarantine":null,"`+scaleplan.ReuseLabel+`":"md-other"}}}`)
	m.settled()
	assert.Equal(t, int64(1), m.replicas(set), "only machines of another set can have the host")
	m.change(spare, `{"metadata":{"labels":{"`+scaleplan.ReuseLabel+`":"md-d"}}}`)
	m.scaled(set, 2)
}

// The host of a healthy machine goes. Until Cluster API can tell that machine from others, none goes.
func testAMachineReplacesAnother(t *testing.T) {
	m := newMachinery(newTestEnv(t), "v1beta2")
	set := m.set("MachineDeployment", "d", func(u *unstructured.Unstructured) {
		require.NoError(m, unstructured.SetNestedField(u.Object, int64(2), "spec", "replicas"))
	})
	of := m.make("MachineSet", "d-1", map[string]any{"replicas": int64(2)}, ownedBy(set))
	faulty, fine := m.machine("faulty", of, true), m.bmh("h2", metal3v1.StateAvailable, "worker")
	h := m.bmh("h1", metal3v1.StateAvailable, "worker")
	m.consume(h, "faulty")
	m.machine("fine", of, true)
	m.consume(fine, "fine")
	m.follow()
	m.settled()
	m.change(h, `{"metadata":{"finalizers":["example.com/deprovision"]}}`)
	require.NoError(t, m.Delete(t.Context(), h))
	m.hasEvent(set, autoscale.EventHeld, "Stays at 2 although its machines have 1 host, and no other that matches is available: Cluster API might delete a machine "+
		"that has a host. Delete the machine that has none, or give it the annotation "+scaleplan.DeleteMachineAnnotation+".")
	assert.Equal(t, int64(2), m.replicas(set))
	m.change(faulty, `{"metadata":{"annotations":{"`+scaleplan.DeleteMachineAnnotation+`":""}}}`)
	m.scaled(set, 1)
}

func testMachineSetAlone(t *testing.T) {
	m := newMachinery(newTestEnv(t), "v1beta2")
	alone := m.set("MachineSet", "alone")
	silent := m.set("MachineSet", "silent", func(u *unstructured.Unstructured) { u.SetAnnotations(nil) })
	no := m.set("MachineDeployment", "no", func(u *unstructured.Unstructured) { u.SetAnnotations(map[string]string{autoscale.Annotation: "false"}) })
	owner := m.set("MachineDeployment", "owner", func(u *unstructured.Unstructured) { u.SetAnnotations(nil) })
	owned := m.set("MachineSet", "owned", ownedBy(owner))
	m.follow()
	h := m.bmh("h1", metal3v1.StateAvailable, "worker")
	m.scaled(alone, 1)
	m.hasEvent(alone, autoscale.EventScaled, "Scaled from 0 to 1: its machines have 0 hosts, and 1 more that matches is available.")
	m.machine("a", alone, false)
	m.consume(h, "a")
	m.bmh("h2", metal3v1.StateAvailable, "worker")
	m.scaled(alone, 2)
	for _, set := range []*unstructured.Unstructured{silent, no, owner, owned} {
		assert.Zero(t, m.replicas(set), set.GetName())
	}
	m.change(silent, `{"metadata":{"annotations":{"`+autoscale.Annotation+`":"yes, please"}}}`)
	m.scaled(silent, 1)
}

// A write of another client between reading and writing is not overwritten, and what a person scales follows hosts again.
func testConcurrentScaling(t *testing.T) {
	m := newMachinery(newTestEnv(t), "v1beta2")
	set := m.set("MachineDeployment", "d")
	var once atomic.Bool
	writes := m.count(func() {
		if once.CompareAndSwap(false, true) {
			m.change(m.object("MachineDeployment", "d"), `{"spec":{"replicas":4}}`)
		}
	})
	m.bmh("h1", metal3v1.StateAvailable, "worker")
	m.follow()
	m.scaled(set, 1)
	m.hasEvent(set, autoscale.EventScaled, "Scaled from 4 to 1: its machines have 0 hosts, and 1 more that matches is available.")
	assert.Positive(t, writes.refused.Load(), "the first write met the user's")
	assert.Equal(t, int64(1), writes.done.Load())
	m.change(set, `{"spec":{"replicas":9}}`)
	m.scaled(set, 1)
	m.change(set, `{"spec":{"replicas":0}}`)
	m.scaled(set, 1)
	m.change(set, `{"metadata":{"annotations":null},"spec":{"replicas":3}}`)
	m.settled()
	assert.Equal(t, int64(3), m.replicas(set), "no annotation asks for it any more")
}

func testWhatHoldsASetUp(t *testing.T) {
	m := newMachinery(newTestEnv(t), "v1beta2")
	const autoscaler = "cluster.x-k8s.io/cluster-api-autoscaler-node-group-max-size"
	note := func(key, value string) func(*unstructured.Unstructured) {
		return func(u *unstructured.Unstructured) {
			u.SetAnnotations(map[string]string{autoscale.Annotation: "", key: value})
		}
	}
	ref := func(kind, name string) func(*unstructured.Unstructured) {
		return func(u *unstructured.Unstructured) {
			require.NoError(m, unstructured.SetNestedMap(u.Object, m.infrastructure(kind, name), "spec", "template", "spec", "infrastructureRef"))
		}
	}
	pausedSet := m.set("MachineDeployment", "paused", note("cluster.x-k8s.io/paused", ""))
	pausedSpec := m.set("MachineDeployment", "paused-spec", func(u *unstructured.Unstructured) {
		require.NoError(m, unstructured.SetNestedField(u.Object, true, "spec", "paused"))
	})
	contested := m.set("MachineDeployment", "contested", note(autoscaler, "5"))
	missing := m.set("MachineDeployment", "missing", ref("Metal3MachineTemplate", "later"))
	other := m.set("MachineSet", "other", ref("DockerMachineTemplate", "d"))
	stray := m.set("MachineSet", "stray", func(u *unstructured.Unstructured) {
		require.NoError(m, unstructured.SetNestedField(u.Object, "elsewhere", "spec", "clusterName"))
	})
	held := []*unstructured.Unstructured{pausedSet, pausedSpec, contested, missing, other, stray}
	m.follow()
	m.bmh("h1", metal3v1.StateAvailable, "worker")
	m.hasEvent(contested, autoscale.EventNotFollowing,
		"Not scaled to hosts: the annotation "+autoscaler+" has Cluster API's autoscaler do it; remove that or this one.")
	m.hasEvent(missing, autoscale.EventNotFollowing, "Not scaled to hosts: there is no Metal3MachineTemplate later in this namespace.")
	m.hasEvent(other, autoscale.EventNotFollowing, "Not scaled to hosts: its machines are made from a DockerMachineTemplate, not from a Metal3MachineTemplate.")
	m.settled()
	for _, set := range held {
		assert.Zero(t, m.replicas(set), set.GetName())
	}
	m.change(pausedSet, `{"metadata":{"annotations":{"cluster.x-k8s.io/paused":null}}}`)
	m.change(pausedSpec, `{"spec":{"paused":false}}`)
	m.make("Metal3MachineTemplate", "later", map[string]any{})
	m.make("Cluster", "elsewhere", map[string]any{"paused": true})
	for _, set := range []*unstructured.Unstructured{pausedSet, pausedSpec, missing} {
		m.scaled(set, 1)
	}
	m.settled()
	m.stays("its Cluster is paused", func() bool { return m.replicas(stray) == 0 }, 3*time.Second)
	m.change(m.object("Cluster", "elsewhere"), `{"spec":{"paused":false}}`)
	m.scaled(stray, 1)
}

// Hosts of another rack that come and change cause no write, and events that say the same are not repeated.
func testWorkGrowsWithChanges(t *testing.T) {
	m := newMachinery(newTestEnv(t), "v1beta2")
	writes := m.count(nil)
	set := m.set("MachineDeployment", "d")
	lost := m.set("MachineDeployment", "lost", func(u *unstructured.Unstructured) {
		require.NoError(m, unstructured.SetNestedMap(u.Object, m.infrastructure("Metal3MachineTemplate", "nowhere"), "spec", "template", "spec", "infrastructureRef"))
	})
	m.follow()
	for i := range 5 {
		m.bmh(fmt.Sprintf("h%d", i), metal3v1.StateAvailable, "worker")
	}
	m.scaled(set, 5)
	so := writes.unrefused()
	assert.LessOrEqual(t, so, int64(5))
	for i := range 5 {
		h := m.bmh(fmt.Sprintf("s%d", i), metal3v1.StateAvailable, "storage")
		m.change(h, `{"metadata":{"labels":{"role":"cache"}}}`)
	}
	witnesses := m.settled()
	assert.Equal(t, so+witnesses, writes.unrefused())
	var list eventsv1.EventList
	require.NoError(t, m.List(t.Context(), &list, client.InNamespace(m.ns)))
	hasEvent := 0
	for i := range list.Items {
		if list.Items[i].Regarding.UID == lost.GetUID() {
			hasEvent++
			assert.Nil(t, list.Items[i].Series, "it is said once")
			assert.Equal(t, corev1.EventTypeWarning, list.Items[i].Type)
		}
	}
	assert.LessOrEqual(t, hasEvent, 1)
}
