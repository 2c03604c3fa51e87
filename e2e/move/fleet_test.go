// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package move

import (
	"encoding/json"
	"fmt"
	"maps"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// patience is how long anything may take on a busy machine before it counts as stuck.
const patience = 2 * time.Minute

// Kinds of a fleet.
var (
	clusterKind      = schema.GroupVersionKind{Group: "cluster.x-k8s.io", Version: "v1beta2", Kind: "Cluster"}
	machineKind      = schema.GroupVersionKind{Group: "cluster.x-k8s.io", Version: "v1beta2", Kind: "Machine"}
	poolKind         = schema.GroupVersionKind{Group: "ipam.metal3.io", Version: "v1alpha1", Kind: "IPPool"}
	claimKind        = schema.GroupVersionKind{Group: "ipam.metal3.io", Version: "v1alpha1", Kind: "IPClaim"}
	addressKind      = schema.GroupVersionKind{Group: "ipam.metal3.io", Version: "v1alpha1", Kind: "IPAddress"}
	capiClaimKind    = schema.GroupVersionKind{Group: "ipam.cluster.x-k8s.io", Version: "v1beta2", Kind: "IPAddressClaim"}
	capiAddressKind  = schema.GroupVersionKind{Group: "ipam.cluster.x-k8s.io", Version: "v1beta2", Kind: "IPAddress"}
	hostKind         = schema.GroupVersionKind{Group: "metal3.io", Version: "v1alpha1", Kind: "BareMetalHost"}
	metal3Machine    = schema.GroupVersionKind{Group: "infrastructure.cluster.x-k8s.io", Version: "v1beta1", Kind: "Metal3Machine"}
	templateKind     = schema.GroupVersionKind{Group: "infrastructure.cluster.x-k8s.io", Version: "v1beta1", Kind: "Metal3DataTemplate"}
	dataClaimKind    = schema.GroupVersionKind{Group: "infrastructure.cluster.x-k8s.io", Version: "v1beta1", Kind: "Metal3DataClaim"}
	dataKind         = schema.GroupVersionKind{Group: "infrastructure.cluster.x-k8s.io", Version: "v1beta1", Kind: "Metal3Data"}
	secretKind       = schema.GroupVersionKind{Version: "v1", Kind: "Secret"}
	kindsOfAddresses = []schema.GroupVersionKind{addressKind, capiAddressKind}
	kindsOfAFleet    = []schema.GroupVersionKind{
		clusterKind, machineKind, poolKind, claimKind, addressKind, capiClaimKind, capiAddressKind,
		metal3Machine, templateKind, dataClaimKind, dataKind, secretKind,
	}
)

// Labels of Cluster API.
const (
	clusterNameLabel = "cluster.x-k8s.io/cluster-name"
	moveLabel        = "clusterctl.cluster.x-k8s.io/move"
)

// fleet is a namespace with a Cluster that has addresses.
type fleet struct {
	*testEnv
	t         *testing.T
	namespace string
	// owners are the references that say whose a claim is, by kind/name.
	owners map[string]metav1.OwnerReference
}

// newFleet makes a Cluster with two Machines at the source, and no pools yet.
func newFleet(t *testing.T) *fleet {
	t.Helper()
	f := &fleet{testEnv: both(), t: t, owners: map[string]metav1.OwnerReference{}}
	require.NoError(t, f.err)
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(f.source.logTail(), f.target.logTail())
		}
	})
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "fleet-"}}
	require.NoError(t, f.source.Create(t.Context(), namespace))
	f.namespace = namespace.Name
	require.NoError(t, f.target.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: f.namespace}}))
	f.create(clusterKind, "c", object{"spec": object{"controlPlaneEndpoint": object{"host": "192.0.2.1", "port": 6443}}})
	// A Cluster that is still being made does not move.
	f.setStatus(clusterKind, "c", object{"initialization": object{"infrastructureProvisioned": true}, "conditions": []any{object{
		"type": "ControlPlaneInitialized", "status": "True", "reason": "Initialized", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z",
	}}})
	for _, name := range []string{"m-0", "m-1"} {
		f.create(machineKind, name, object{"spec": object{
			"clusterName": "c", "bootstrap": object{"dataSecretName": name},
			"infrastructureRef": object{"apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "Metal3Machine", "name": name},
		}}, f.ownedBy("Cluster/c"))
		f.setStatus(machineKind, name, object{"nodeRef": object{"name": name}})
	}
	return f
}

// object is the content of an object.
type object = map[string]any

// change changes an object before it is created.
type change func(*unstructured.Unstructured)

func (f *fleet) ownedBy(owner string) change {
	return func(obj *unstructured.Unstructured) {
		reference, ok := f.owners[owner]
		require.True(f.t, ok, owner)
		obj.SetOwnerReferences([]metav1.OwnerReference{reference})
	}
}

func labelled(key, value string) change {
	return func(obj *unstructured.Unstructured) { obj.SetLabels(map[string]string{key: value}) }
}

func annotated(key, value string) change {
	return func(obj *unstructured.Unstructured) { obj.SetAnnotations(map[string]string{key: value}) }
}

func (f *fleet) create(kind schema.GroupVersionKind, name string, content object, changes ...change) {
	f.t.Helper()
	f.createAt(f.source, kind, name, content, changes...)
}

func (f *fleet) createAt(p *plane, kind schema.GroupVersionKind, name string, content object, changes ...change) {
	f.t.Helper()
	// Numbers of an unstructured object are those of JSON.
	text, err := json.Marshal(content)
	require.NoError(f.t, err)
	obj := &unstructured.Unstructured{}
	require.NoError(f.t, json.Unmarshal(text, &obj.Object))
	obj.SetGroupVersionKind(kind)
	obj.SetNamespace(f.namespace)
	obj.SetName(name)
	for _, apply := range changes {
		apply(obj)
	}
	require.NoError(f.t, p.Create(f.t.Context(), obj))
	f.owners[kind.Kind+"/"+name] = metav1.OwnerReference{
		APIVersion: kind.GroupVersion().String(), Kind: kind.Kind, Name: name, UID: obj.GetUID(), Controller: new(true), BlockOwnerDeletion: new(true),
	}
}

func (f *fleet) setStatus(kind schema.GroupVersionKind, name string, status object) {
	f.t.Helper()
	text, err := json.Marshal(object{"status": status})
	require.NoError(f.t, err)
	require.NoError(f.t, f.source.Status().Patch(f.t.Context(), f.named(kind, name), client.RawPatch(types.MergePatchType, text)))
}

func (f *fleet) named(kind schema.GroupVersionKind, name string) *unstructured.Unstructured {
	obj := &unstructured.Unstructured{}
	obj.SetGroupVersionKind(kind)
	obj.SetNamespace(f.namespace)
	obj.SetName(name)
	return obj
}

func pool(prefix string, spec object) object {
	spec["namePrefix"] = prefix
	return object{"spec": spec}
}

func span(first, last string) []any { return []any{object{"start": first, "end": last}} }

func claimOn(pool string) object { return object{"spec": object{"pool": object{"name": pool}}} }

func capiClaimOn(pool string, spec object) object {
	spec["poolRef"] = object{"apiGroup": "ipam.metal3.io", "kind": "IPPool", "name": pool}
	return object{"spec": spec}
}

// fact is what must be the same of an object on both sides.
type fact struct {
	Owners, Finalizers []string
	Labels             map[string]string
	Spec, Data, Type   any
	// Says is what the status says, as far as users rely on it.
	Says object
}

// facts are all objects of the fleet at a plane. An owner that is not there with this very UID shows as dangling.
func (f *fleet) facts(p *plane) map[string]fact {
	f.t.Helper()
	objects := f.list(p)
	names := map[types.UID]string{}
	for i := range objects {
		names[objects[i].GetUID()] = nameOf(&objects[i])
	}
	out := map[string]fact{}
	for i := range objects {
		obj := &objects[i]
		known := fact{Finalizers: obj.GetFinalizers(), Labels: obj.GetLabels(), Spec: obj.Object["spec"], Data: obj.Object["data"], Type: obj.Object["type"], Says: says(obj)}
		for _, owner := range obj.GetOwnerReferences() {
			name, ok := names[owner.UID]
			if !ok {
				name = "dangling " + owner.Kind + "/" + owner.Name
			}
			known.Owners = append(known.Owners, fmt.Sprint(name, " controller: ", owner.Controller != nil && *owner.Controller,
				" blocks: ", owner.BlockOwnerDeletion != nil && *owner.BlockOwnerDeletion))
		}
		slices.Sort(known.Owners) // a mover keeps no order
		out[nameOf(obj)] = known
	}
	return out
}

func (f *fleet) list(p *plane) []unstructured.Unstructured {
	f.t.Helper()
	var objects []unstructured.Unstructured
	for _, kind := range kindsOfAFleet {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(kind)
		require.NoError(f.t, p.List(f.t.Context(), list, client.InNamespace(f.namespace)))
		objects = append(objects, list.Items...)
	}
	return objects
}

// nameOf tells the objects of a fleet apart: kinds of Cluster API's contract are those of "capi".
func nameOf(obj *unstructured.Unstructured) string {
	group, _, _ := strings.Cut(strings.Replace(obj.GroupVersionKind().Group, "ipam.cluster", "capi", 1), ".")
	return group + "/" + obj.GetKind() + "/" + obj.GetName()
}

// says picks the fields of a status that users rely on, and whether the object is ready.
func says(obj *unstructured.Unstructured) object {
	status, _, _ := unstructured.NestedMap(obj.Object, "status")
	out := object{}
	for _, field := range []string{"address", "addressRef", "errorMessage", "indexes", "total", "used", "free", "ready", "renderedData"} {
		if value, ok := status[field]; ok {
			out[field] = value
		}
	}
	conditions, _, _ := unstructured.NestedSlice(status, "conditions")
	for _, condition := range conditions {
		if c := condition.(object); c["type"] == "Ready" {
			out["ready"] = c["status"]
		}
	}
	return out
}

// served waits until every claim at a plane has what it asks for, and every pool and template tells so.
func (f *fleet) served(p *plane) map[string]fact {
	f.t.Helper()
	var now map[string]fact
	f.eventually("the claims of the fleet are not served", func() bool {
		now = f.facts(p)
		taken, rendered := map[string]int{}, map[string]int{}
		for name, known := range now {
			switch {
			case strings.Contains(name, "/IPClaim/") && known.Says["address"] == nil, strings.Contains(name, "/IPAddressClaim/") && known.Says["addressRef"] == nil,
				strings.Contains(name, "/Metal3DataClaim/") && known.Says["renderedData"] == nil, strings.Contains(name, "/Metal3Data/") && known.Says["ready"] != true:
				return false
			case strings.HasPrefix(name, "ipam/IPAddress/"):
				taken[known.Spec.(object)["pool"].(object)["name"].(string)]++
			case strings.Contains(name, "/Metal3Data/"):
				rendered[known.Spec.(object)["template"].(object)["name"].(string)]++
			}
		}
		for name, known := range now {
			if poolName, ok := strings.CutPrefix(name, "ipam/IPPool/"); ok && fmt.Sprint(known.Says["used"]) != fmt.Sprint(taken[poolName]) {
				return false
			}
			if template, ok := strings.CutPrefix(name, "infrastructure/Metal3DataTemplate/"); ok {
				if indexes, _ := known.Says["indexes"].(object); len(indexes) != rendered[template] {
					return false
				}
			}
		}
		return assert.ObjectsAreEqual(now, f.facts(p)) // kinds are listed one after the other: what did not change meanwhile was so at one time
	})
	return now
}

// eventually asks on the test's own goroutine, which may end the test.
func (f *fleet) eventually(what string, ok func() bool) {
	f.t.Helper()
	for deadline := time.Now().Add(patience); !ok(); {
		require.True(f.t, time.Now().Before(deadline), what)
		<-time.NewTimer(50 * time.Millisecond).C
	}
}

// same waits until the target shows what the source has shown.
func (f *fleet) same(before map[string]fact) {
	f.t.Helper()
	var after map[string]fact
	deadline := time.Now().Add(patience)
	for after = f.facts(f.target); !assert.ObjectsAreEqual(before, after) && time.Now().Before(deadline); after = f.facts(f.target) {
		wait := time.NewTimer(50 * time.Millisecond)
		<-wait.C
	}
	require.Equal(f.t, before, after)
}

// noContradictions runs the checker of the operator, as a user does, until it finds nothing.
func (f *fleet) noContradictions(p *plane) {
	f.t.Helper()
	var found []byte
	ok := assert.Eventually(f.t, func() bool {
		var err error
		found, err = exec.CommandContext(f.t.Context(), ipamOperator, "check", "--kubeconfig="+p.kubeconfig, "--namespace="+f.namespace).CombinedOutput()
		return err == nil
	}, patience, 100*time.Millisecond)
	require.True(f.t, ok, "%s: %s", p.name, found)
}

// births are the addresses that came to a plane, and those that went.
type births struct {
	stop []func()
	done chan map[string][]string
}

func (f *fleet) watchAddresses(p *plane) *births {
	f.t.Helper()
	b := &births{done: make(chan map[string][]string)}
	for _, kind := range kindsOfAddresses {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(kind)
		watcher, err := p.Watch(f.t.Context(), list, client.InNamespace(f.namespace))
		require.NoError(f.t, err)
		b.stop = append(b.stop, watcher.Stop)
		go func() {
			seen := map[string][]string{}
			for event := range watcher.ResultChan() {
				if obj, ok := event.Object.(*unstructured.Unstructured); ok && event.Type != watch.Modified {
					seen[nameOf(obj)] = append(seen[nameOf(obj)], string(event.Type))
				}
			}
			b.done <- seen
		}()
	}
	return b
}

// all ends the watches.
func (b *births) all() map[string][]string {
	out := map[string][]string{}
	for _, stop := range b.stop {
		stop()
	}
	for range b.stop {
		maps.Copy(out, <-b.done)
	}
	return out
}

// once ends the watches, and demands that every address that was moved came once and never went, and that there was no other.
func (f *fleet) once(b *births, before map[string]fact) {
	f.t.Helper()
	moved := map[string][]string{}
	for name := range before {
		if strings.Contains(name, "/IPAddress/") {
			moved[name] = []string{string(watch.Added)}
		}
	}
	require.Equal(f.t, moved, b.all())
}

// onlyLeft waits until a plane has nothing of the fleet but what is named.
func (f *fleet) onlyLeft(p *plane, names ...string) {
	f.t.Helper()
	slices.Sort(names)
	f.eventually("objects are left", func() bool {
		return slices.Equal(names, slices.Sorted(maps.Keys(f.facts(p))))
	})
}

// goOn lets a paused Cluster go on, and waits until nothing of it is being deleted any more. It reports whether there was one.
func (f *fleet) goOn(p *plane) bool {
	f.t.Helper()
	err := p.Patch(f.t.Context(), f.named(clusterKind, "c"), client.RawPatch(types.MergePatchType, []byte(`{"spec":{"paused":null}}`)))
	if apierrors.IsNotFound(err) {
		return false
	}
	require.NoError(f.t, err)
	f.eventually("something is still being deleted", func() bool { return len(f.leaving(p)) == 0 })
	return true
}

// leaving are the objects of the fleet that are being deleted.
func (f *fleet) leaving(p *plane) []string {
	f.t.Helper()
	var names []string
	for _, obj := range f.list(p) {
		if obj.GetDeletionTimestamp() != nil {
			names = append(names, nameOf(&obj))
		}
	}
	return names
}
