// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package dataplan_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	infrav1 "github.com/muster-io/muster/apis/infrastructure/v1beta1"
	ipamv1 "github.com/muster-io/muster/apis/ipam/v1alpha1"
	metal3v1 "github.com/muster-io/muster/apis/metal3/v1alpha1"
	"github.com/muster-io/muster/ipam-operator/internal/allocate"
	"github.com/muster-io/muster/ipam-operator/internal/dataplan"
	"github.com/muster-io/muster/ipam-operator/internal/render"
)

var (
	deletedAt = metav1.NewTime(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	ours      = render.Pool{Group: ipamv1.GroupVersion.Group, Kind: ipamv1.IPPoolKind, Name: "ours"}
	theirs    = render.Pool{Group: "ipam.cluster.x-k8s.io", Kind: "InClusterIPPool", Name: "theirs"}
)

// snapshot is one of data that renders two Secrets from one address, all of which are there but the Secrets.
func snapshot() *dataplan.Snapshot {
	template := &infrav1.Metal3DataTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "t"}}
	template.Spec.ClusterName = "c"
	template.Spec.MetaData = &infrav1.MetaData{IPAddressesFromIPPool: []infrav1.MetaDataFromPool{{Key: "ip", Name: "ours"}}}
	template.Spec.NetworkData = &infrav1.NetworkData{Services: infrav1.NetworkServices{DNSFromIPPool: new("ours")}}
	claim := &infrav1.Metal3DataClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "claim", UID: "claim-uid", OwnerReferences: []metav1.OwnerReference{
		{APIVersion: infrav1.GroupVersion.String(), Kind: infrav1.Metal3MachineKind, Name: "m3m"},
	}}}
	s := &dataplan.Snapshot{
		Data: &infrav1.Metal3Data{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: "ns", Name: "t-0", UID: "uid", Labels: map[string]string{"l": "v"}, Finalizers: []string{infrav1.DataFinalizer},
				OwnerReferences: dataplan.Owners(template, claim, claim.OwnerReferences[0]),
			},
			Spec: infrav1.Metal3DataSpec{Claim: infrav1.ObjectReference{Name: "claim"}, Template: infrav1.ObjectReference{Name: "t"}},
		},
		Template: template,
		Claim:    claim,
		Secrets:  map[string]*metav1.PartialObjectMetadata{},
		Claims:   map[render.Pool]dataplan.Claim{ours: ipClaim("t-0-ours", "uid")},
		Machine: dataplan.Machine{
			Metal3Machine: dataplan.Found{PartialObjectMetadata: &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
				Namespace: "ns", Name: "m3m", Annotations: map[string]string{infrav1.HostAnnotation: "ns/host"},
				OwnerReferences: []metav1.OwnerReference{{APIVersion: "cluster.x-k8s.io/v1beta2", Kind: "Machine", Name: "m"}},
			}}},
			Machine: dataplan.Found{PartialObjectMetadata: &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: "m"}}},
			Host:    &metal3v1.BareMetalHost{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "host"}},
		},
	}
	s.Data.Spec.MetaData, s.Data.Spec.NetworkData = dataplan.Secrets(template, "m3m")
	return s
}

func ownedBy(uid types.UID) []metav1.OwnerReference {
	return []metav1.OwnerReference{{Kind: infrav1.Metal3DataKind, Name: "t-0", UID: uid, Controller: new(true)}}
}

// ipClaim is an IPClaim of the pool ours that has an address.
func ipClaim(name string, owner types.UID) dataplan.Claim {
	claim := &ipamv1.IPClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, OwnerReferences: ownedBy(owner)}}
	claim.Spec.Pool.Name = "ours"
	claim.Status.Address = &ipamv1.ObjectReference{Name: "ours-10-0-0-7"}
	address := &ipamv1.IPAddress{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "ours-10-0-0-7"}}
	address.Spec.Address, address.Spec.Prefix, address.Spec.Pool.Name = "10.0.0.7", 24, "ours"
	return dataplan.Claim{Object: claim, Kind: ipamv1.IPClaimKind, Address: address}
}

// contractClaim is an IPAddressClaim with a status.
func contractClaim(owner types.UID, status map[string]any) dataplan.Claim {
	claim := &unstructured.Unstructured{Object: map[string]any{"status": status}}
	claim.SetName("t-0-theirs")
	claim.SetOwnerReferences(ownedBy(owner))
	return dataplan.Claim{Object: claim, Kind: dataplan.ContractClaimKind.Kind}
}

func deleted(claim dataplan.Claim) dataplan.Claim {
	claim.SetDeletionTimestamp(&deletedAt)
	return claim
}

// fromTheirs adds a pool of another kind to the template.
func fromTheirs(s *dataplan.Snapshot) {
	s.Template.Spec.MetaData.GatewaysFromPool = []infrav1.MetaDataFromPool{{Key: "gw", Name: "theirs", APIGroup: theirs.Group, Kind: theirs.Kind}}
}

func secret(name string, owner types.UID) *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: name, OwnerReferences: ownedBy(owner)}}
}

func withClaim(change func(*ipamv1.IPClaim)) func(*dataplan.Snapshot) {
	return func(s *dataplan.Snapshot) { change(s.Claims[ours].Object.(*ipamv1.IPClaim)) }
}

// transcript writes a decision as lines: its actions in order, then what is reported.
func transcript(d dataplan.Decision) []string {
	out := []string{}
	for _, action := range d.Actions {
		switch do := action.(type) {
		case dataplan.ReleaseClaim:
			out = append(out, "release claim "+do.Claim.GetName())
		case dataplan.DeleteClaim:
			out = append(out, "delete claim "+do.Claim.GetName())
		case dataplan.CreateClaim:
			out = append(out, "create "+do.Kind+" "+do.Claim.GetName())
		case dataplan.CreateSecret:
			out = append(out, "create secret "+do.Secret.Name)
		case dataplan.UpdateData:
			out = append(out, fmt.Sprintf("update data: %v, %s, %s", do.Data.Finalizers, do.Data.Spec.MetaData.Name, do.Data.Spec.NetworkData.Name))
		case dataplan.AdoptClaim:
			out = append(out, "adopt claim "+do.Claim.GetName()+" for "+do.Owner.Name)
		case dataplan.DeleteData:
			out = append(out, "delete data")
		case dataplan.ReleaseData:
			out = append(out, "release data")
		}
	}
	switch {
	case d.Report == nil:
		return append(out, string(d.Why))
	case d.Report.Ready:
		return append(out, string(d.Why)+", ready")
	default:
		return append(out, string(d.Why)+": "+d.Report.Message)
	}
}

func TestPlan(t *testing.T) {
	for name, c := range map[string]struct {
		given func(*dataplan.Snapshot)
		want  []string
	}{
		"all is known": {func(*dataplan.Snapshot) {}, []string{"create secret m3m-metadata", "create secret m3m-networkdata", "Served, ready"}},
		"one Secret is there": {
			func(s *dataplan.Snapshot) { s.Secrets["m3m-metadata"] = secret("m3m-metadata", "uid") },
			[]string{"create secret m3m-networkdata", "Served, ready"},
		},
		"both Secrets are there, and the status says nothing": {
			func(s *dataplan.Snapshot) {
				s.Secrets["m3m-metadata"], s.Secrets["m3m-networkdata"] = secret("m3m-metadata", "uid"), secret("m3m-networkdata", "uid")
				s.Machine, s.Template = dataplan.Machine{}, nil
			}, []string{"Served, ready"},
		},
		"Secrets of a user": {
			func(s *dataplan.Snapshot) {
				s.Secrets["m3m-metadata"], s.Secrets["m3m-networkdata"] = &metav1.PartialObjectMetadata{}, &metav1.PartialObjectMetadata{}
			}, []string{"Served, ready"},
		},
		"a Secret of other data": {
			func(s *dataplan.Snapshot) { s.Secrets["m3m-networkdata"] = secret("m3m-networkdata", "other") },
			[]string{"create secret m3m-metadata", "SecretInTheWay: Secret m3m-networkdata belongs to another Metal3Data, t-0"},
		},
		"a Secret that is being deleted": {
			func(s *dataplan.Snapshot) {
				s.Secrets["m3m-metadata"] = secret("m3m-metadata", "uid")
				s.Secrets["m3m-metadata"].DeletionTimestamp = &deletedAt
			}, []string{"SecretInTheWay: Secret m3m-metadata is being deleted"},
		},
		"data that another client made": {
			func(s *dataplan.Snapshot) {
				s.Data.Finalizers, s.Data.Spec.MetaData, s.Data.Spec.NetworkData = nil, nil, &infrav1.SecretReference{}
			},
			[]string{
				"update data: [metal3data.infrastructure.cluster.x-k8s.io], m3m-metadata, m3m-networkdata",
				"create secret m3m-metadata", "create secret m3m-networkdata", "Served, ready",
			},
		},

		"paused":             {func(s *dataplan.Snapshot) { s.Hold = allocate.HeldPaused }, []string{"Paused"}},
		"deleted and paused": {func(s *dataplan.Snapshot) { s.Hold, s.Data.DeletionTimestamp = allocate.HeldPaused, &deletedAt }, []string{"Paused"}},
		"no Cluster":         {func(s *dataplan.Snapshot) { s.Hold = allocate.HeldClusterMissing }, []string{"ClusterNotFound: Cluster c not found"}},
		"no template":        {func(s *dataplan.Snapshot) { s.Template = nil }, []string{"TemplateNotFound: Metal3DataTemplate t not found"}},
		"no claim":           {func(s *dataplan.Snapshot) { s.Claim = nil }, []string{"delete data", ""}},
		"no claim of data that was made by hand": {
			func(s *dataplan.Snapshot) { s.Claim, s.Data.Finalizers = nil, nil }, []string{"ClaimNotFound: Metal3DataClaim claim not found"},
		},
		"no claim of data that was restored": {
			func(s *dataplan.Snapshot) { s.Claim, s.Data.OwnerReferences = nil, nil }, []string{"ClaimNotFound: Metal3DataClaim claim not found"},
		},

		"a claim without a machine": {
			func(s *dataplan.Snapshot) { s.Claim.OwnerReferences = nil }, []string{"MachineNotReady: Metal3Machine not found in owner references"},
		},
		"a machine that is gone": {
			func(s *dataplan.Snapshot) { s.Machine.Metal3Machine = dataplan.Found{} }, []string{"MachineNotReady: Metal3Machine m3m not found"},
		},
		"a machine whose kind is not installed": {
			func(s *dataplan.Snapshot) { s.Machine.Machine = dataplan.Found{NotServed: true} },
			[]string{"MachineNotReady: Machine m not found: the kind is not installed"},
		},
		"a machine without an owner": {
			func(s *dataplan.Snapshot) { s.Machine.Metal3Machine.OwnerReferences = nil },
			[]string{"MachineNotReady: Waiting for Machine Controller to set OwnerRef on Metal3Machine"},
		},
		"a machine without a host": {
			func(s *dataplan.Snapshot) { s.Machine.Metal3Machine.Annotations = nil }, []string{"MachineNotReady: Waiting for BareMetalHost to become available"},
		},
		"a machine that names a host of another namespace": {
			func(s *dataplan.Snapshot) {
				s.Machine.Metal3Machine.Annotations = map[string]string{infrav1.HostAnnotation: "other/host"}
			}, []string{"MachineNotReady: Waiting for BareMetalHost to become available"},
		},
		"a host that is gone": {func(s *dataplan.Snapshot) { s.Machine.Host = nil }, []string{"MachineNotReady: Waiting for BareMetalHost to become available"}},
		"a claim of a host": {
			func(s *dataplan.Snapshot) {
				s.Claim.OwnerReferences[0] = metav1.OwnerReference{APIVersion: metal3v1.GroupVersion.String(), Kind: "BareMetalHost", Name: "m3m"}
				s.Machine = dataplan.Machine{Host: s.Machine.Host}
			}, []string{"create secret m3m-metadata", "create secret m3m-networkdata", "Served, ready"},
		},

		"no claims": {
			func(s *dataplan.Snapshot) { fromTheirs(s); s.Claims = nil },
			[]string{"create IPClaim t-0-ours", "create IPAddressClaim t-0-theirs", "NoAddress: "},
		},
		"a claim by the name of the host": {
			func(s *dataplan.Snapshot) { fromTheirs(s); s.Claims, s.NameByHost = nil, true },
			[]string{"create IPClaim host-ours", "create IPAddressClaim t-0-theirs", "NoAddress: "},
		},
		"the kinds of the contract are not installed": {
			func(s *dataplan.Snapshot) { fromTheirs(s); s.NoContract = true },
			[]string{"NoAddress: IPAddressClaim t-0-theirs: the kinds of ipam.cluster.x-k8s.io are not installed"},
		},
		"a claim that is not served yet": {withClaim(func(c *ipamv1.IPClaim) { c.Status = ipamv1.IPClaimStatus{} }), []string{"NoAddress: "}},
		"a claim that is refused": {
			withClaim(func(c *ipamv1.IPClaim) { c.Status.ErrorMessage = new("full") }), []string{"NoAddress: IP Allocation for ours failed : full"},
		},
		"a claim whose condition says why": {
			withClaim(func(c *ipamv1.IPClaim) {
				c.Status = ipamv1.IPClaimStatus{Conditions: []metav1.Condition{{Type: ipamv1.ReadyCondition, Status: metav1.ConditionFalse, Message: "waits"}}}
			}), []string{"NoAddress: IP Allocation for ours failed : waits"},
		},
		"an address that is gone": {
			func(s *dataplan.Snapshot) { c := s.Claims[ours]; c.Address = nil; s.Claims[ours] = c }, []string{"NoAddress: "},
		},
		"a claim of the contract that is refused, and one of ours that waits": {
			func(s *dataplan.Snapshot) {
				fromTheirs(s)
				withClaim(func(c *ipamv1.IPClaim) { c.Status = ipamv1.IPClaimStatus{} })(s)
				s.Claims[theirs] = contractClaim("uid", map[string]any{"conditions": []any{map[string]any{"type": "Ready", "status": "False", "message": "no"}}})
			}, []string{"NoAddress: IP Allocation for theirs failed : no"},
		},
		"a claim of former data of this name": {
			func(s *dataplan.Snapshot) { s.Claims[ours] = ipClaim("t-0-ours", "former") }, []string{"NoAddress: "},
		},
		"a claim without owner has the name": {
			withClaim(func(c *ipamv1.IPClaim) { c.OwnerReferences = nil }), []string{"NoAddress: IPClaim t-0-ours is there already and has no owner"},
		},
		"a claim of restored data": {
			func(s *dataplan.Snapshot) {
				s.Data.OwnerReferences = nil
				withClaim(func(c *ipamv1.IPClaim) { c.OwnerReferences = nil })(s)
			}, []string{"adopt claim t-0-ours for t-0", "NoAddress: "},
		},
		"a claim of the contract of restored data": {
			func(s *dataplan.Snapshot) {
				fromTheirs(s)
				s.Data.OwnerReferences, s.Claims[theirs] = nil, contractClaim("uid", nil)
				s.Claims[theirs].SetOwnerReferences(nil)
				pool := map[string]any{"apiGroup": theirs.Group, "kind": theirs.Kind, "name": theirs.Name}
				s.Claims[theirs].Object.(*unstructured.Unstructured).Object["spec"] = map[string]any{"poolRef": pool}
			}, []string{"adopt claim t-0-theirs for t-0", "NoAddress: "},
		},
		"a claim of another pool has the name of one of restored data": {
			func(s *dataplan.Snapshot) {
				s.Data.OwnerReferences = nil
				withClaim(func(c *ipamv1.IPClaim) { c.OwnerReferences, c.Spec.Pool.Name = nil, "x" })(s)
			}, []string{"NoAddress: IPClaim t-0-ours is there already and has no owner"},
		},
		"restored data whose claims were adopted": {
			func(s *dataplan.Snapshot) { s.Data.OwnerReferences = nil },
			[]string{
				"update data: [metal3data.infrastructure.cluster.x-k8s.io], m3m-metadata, m3m-networkdata",
				"create secret m3m-metadata", "create secret m3m-networkdata", "Served, ready",
			},
		},
		"a claim of something else has the name": {
			withClaim(func(c *ipamv1.IPClaim) {
				c.OwnerReferences = []metav1.OwnerReference{{Kind: "Machine", Name: "x", Controller: new(true)}}
			}), []string{"NoAddress: IPClaim t-0-ours belongs to Machine x"},
		},

		"one name of two kinds of pools": {
			func(s *dataplan.Snapshot) {
				s.Template.Spec.MetaData.GatewaysFromPool = []infrav1.MetaDataFromPool{{Key: "gw", Name: "ours", APIGroup: theirs.Group, Kind: theirs.Kind}}
			}, []string{"NotRenderable: multiple references with the same name but different resource types: ours"},
		},
		"network data that cannot be rendered": {
			func(s *dataplan.Snapshot) {
				s.Template.Spec.NetworkData.Links.Ethernets = []infrav1.Ethernet{{ID: "e", MACAddress: &infrav1.LinkMAC{FromHostInterface: new("eth0")}}}
			}, []string{"create secret m3m-metadata", "NotRenderable: link e: NICs list not populated"},
		},

		"claims of former data are released": {
			func(s *dataplan.Snapshot) {
				paused := deleted(ipClaim("paused", "former"))
				paused.Paused = true
				s.Owned = []dataplan.Claim{deleted(ipClaim("former", "former")), deleted(ipClaim("own", "uid")), ipClaim("alive", "former"), paused}
			}, []string{"release claim former", "create secret m3m-metadata", "create secret m3m-networkdata", "Served, ready"},
		},
		"data that is gone": {
			func(s *dataplan.Snapshot) {
				s.Data, s.Owned = nil, []dataplan.Claim{deleted(ipClaim("a", "uid")), ipClaim("alive", "uid")}
			}, []string{"release claim a", ""},
		},
		"data that the API server still has": {
			func(s *dataplan.Snapshot) {
				s.Data, s.LiveUID, s.Owned = nil, "uid", []dataplan.Claim{deleted(ipClaim("a", "uid"))}
			}, []string{""},
		},
		"deleted data gives its claims back": {
			func(s *dataplan.Snapshot) {
				s.Data.DeletionTimestamp = &deletedAt
				s.Owned = []dataplan.Claim{ipClaim("a", "uid"), deleted(ipClaim("b", "uid")), ipClaim("other", "other")}
			}, []string{"release claim a", "delete claim a", "release claim b", "Deleted"},
		},
		"deleted data waits for a claim that is paused": {
			func(s *dataplan.Snapshot) {
				s.Data.DeletionTimestamp = &deletedAt
				s.Owned = []dataplan.Claim{ipClaim("a", "uid")}
				s.Owned[0].Paused = true
			}, []string{"Deleted"},
		},
		"deleted data without claims": {func(s *dataplan.Snapshot) { s.Data.DeletionTimestamp = &deletedAt }, []string{"release data", "Deleted"}},
		"deleted data without finalizer": {
			func(s *dataplan.Snapshot) {
				s.Data.DeletionTimestamp, s.Data.Finalizers = &deletedAt, []string{"other"}
			}, []string{"Deleted"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := snapshot()
			c.given(s)
			assert.Equal(t, c.want, transcript(dataplan.Plan(*s)))
		})
	}
}

func TestWhatIsRead(t *testing.T) {
	for name, c := range map[string]struct {
		given                                    func(*dataplan.Snapshot)
		looksLive, looksForClaim, waits, renders bool
	}{
		"data that waits":      {func(*dataplan.Snapshot) {}, false, true, true, true},
		"data without a claim": {func(s *dataplan.Snapshot) { s.Claim = nil }, false, true, false, false},
		"no template":          {func(s *dataplan.Snapshot) { s.Template = nil }, false, true, true, false},
		"no Cluster":           {func(s *dataplan.Snapshot) { s.Hold = allocate.HeldClusterMissing }, false, true, true, false},
		"paused":               {func(s *dataplan.Snapshot) { s.Hold = allocate.HeldPaused }, false, false, false, false},
		"deleted":              {func(s *dataplan.Snapshot) { s.Data.DeletionTimestamp = &deletedAt }, false, false, false, false},
		"gone":                 {func(s *dataplan.Snapshot) { s.Data = nil }, false, false, false, false},
		"gone, a claim is being deleted": {
			func(s *dataplan.Snapshot) { s.Data, s.Owned = nil, []dataplan.Claim{deleted(ipClaim("a", "uid"))} }, true, false, false, false,
		},
		"rendered": {func(s *dataplan.Snapshot) {
			s.Secrets["m3m-metadata"], s.Secrets["m3m-networkdata"] = secret("m3m-metadata", "uid"), secret("m3m-networkdata", "uid")
		}, false, true, false, false},
	} {
		s := snapshot()
		c.given(s)
		assert.Equal(t, []bool{c.looksLive, c.looksForClaim, c.waits, c.renders}, []bool{s.LooksLive(), s.LooksForClaim(), s.Waits(), s.Renders()}, name)
	}

	s := snapshot()
	fromTheirs(s)
	assert.Equal(t, []dataplan.Want{{ours, "IPClaim", "t-0-ours"}, {theirs, "IPAddressClaim", "t-0-theirs"}}, s.Wants())
	assert.Empty(t, s.SecretsToRender(), "an address is missing")
	s.Owned = []dataplan.Claim{ipClaim("host-ours", "uid")}
	assert.Equal(t, "host-ours", s.Wants()[0].Name, "a claim is kept under its name")
	s.Claims[theirs] = contractClaim("uid", map[string]any{"addressRef": map[string]any{"name": "a"}})
	claim := s.Claims[theirs]
	assert.Equal(t, "a", claim.AddressName())
	assert.Empty(t, claim.PoolToRead())
	claim.Address = &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"address": "10.1.0.1", "prefix": int64(16), "gateway": "10.1.0.254"}}}
	s.Claims[theirs] = claim
	assert.Equal(t, []string{"m3m-metadata", "m3m-networkdata"}, s.SecretsToRender())
	s.Machine.Host = nil
	assert.Empty(t, s.Wants())
	assert.Empty(t, s.SecretsToRender())
}

// rendered is the metadata that a plan writes.
func rendered(t *testing.T, s *dataplan.Snapshot) *corev1.Secret {
	t.Helper()
	for _, action := range dataplan.Plan(*s).Actions {
		if create, ok := action.(dataplan.CreateSecret); ok && create.Secret.Name == "m3m-metadata" {
			return create.Secret
		}
	}
	require.Fail(t, "nothing is rendered", "%v", transcript(dataplan.Plan(*s)))
	return nil
}

func TestWhatIsWritten(t *testing.T) {
	s := snapshot()
	fromTheirs(s)
	claim := contractClaim("uid", map[string]any{"addressRef": map[string]any{"name": "a"}})
	claim.Address = &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"address": "10.1.0.1", "prefix": int64(16), "gateway": "10.1.0.254"}}}
	s.Claims[theirs] = claim
	secret := rendered(t, s)
	assert.Equal(t, "gw: 10.1.0.254\nip: 10.0.0.7\nproviderid: ns/host/m3m\n", string(secret.Data[infrav1.MetaDataKey]))
	assert.Equal(t, infrav1.SecretType, secret.Type)
	assert.Equal(t, map[string]string{ipamv1.ClusterNameLabel: "c"}, secret.Labels)
	require.Len(t, secret.OwnerReferences, 1)
	assert.Equal(t, types.UID("uid"), secret.OwnerReferences[0].UID)

	s.Claims, s.NameByHost = nil, true
	actions := dataplan.Plan(*s).Actions
	require.Len(t, actions, 2)
	ipClaim := actions[0].(dataplan.CreateClaim).Claim.(*ipamv1.IPClaim)
	assert.Equal(t, map[string]string{"l": "v", "infrastructure.cluster.x-k8s.io/data-name": "t-0", "infrastructure.cluster.x-k8s.io/pool-name": "ours"}, ipClaim.Labels)
	assert.Equal(t, map[string]string{"l": "v"}, s.Data.Labels, "the snapshot stays as it is")
	assert.Equal(t, []string{infrav1.DataFinalizer}, ipClaim.Finalizers)
	contract := actions[1].(dataplan.CreateClaim).Claim.(*unstructured.Unstructured)
	assert.Equal(t, map[string]any{"poolRef": map[string]any{"apiGroup": theirs.Group, "kind": theirs.Kind, "name": "theirs"}}, contract.Object["spec"])
	assert.Equal(t, []string{infrav1.DataFinalizer}, contract.GetFinalizers())
}

func TestPrefixOfAnAddressThatStatesNone(t *testing.T) {
	s := snapshot()
	s.Template.Spec.MetaData.PrefixesFromIPPool = []infrav1.MetaDataFromPool{{Key: "prefix", Name: "ours"}}
	claim := s.Claims[ours]
	address := claim.Address.(*ipamv1.IPAddress)
	address.Spec.Prefix = 0
	assert.Equal(t, "ours", claim.PoolToRead())
	assert.Equal(t, []string{"NotRenderable: address 10.0.0.7 of pool ours has no prefix: write prefix or subnet into the pool"}, transcript(dataplan.Plan(*s)))

	claim.Layout = allocate.Parse(&ipamv1.IPPoolSpec{Pools: []ipamv1.Pool{{Subnet: new(ipamv1.IPSubnetStr("10.0.0.0/20"))}}}, "")
	s.Claims[ours] = claim
	assert.Contains(t, string(rendered(t, s).Data[infrav1.MetaDataKey]), `prefix: "20"`)

	address.Spec.Address = "x"
	assert.Contains(t, transcript(dataplan.Plan(*s))[0], "NoAddress: IPAddress ours-10-0-0-7: ")
}

func TestBelongs(t *testing.T) {
	claim := &infrav1.Metal3DataClaim{ObjectMeta: metav1.ObjectMeta{Name: "claim", UID: "now", CreationTimestamp: deletedAt}}
	data := &infrav1.Metal3Data{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.NewTime(deletedAt.Add(-time.Hour))}}
	data.Spec.Claim.Name = "claim"
	assert.True(t, dataplan.Belongs(data, claim), "restored before the claim")
	data.OwnerReferences = []metav1.OwnerReference{{Kind: infrav1.Metal3DataTemplateKind, Name: "t"}}
	data.CreationTimestamp = deletedAt
	assert.True(t, dataplan.Belongs(data, claim), "no owner, and not older")
	data.CreationTimestamp = metav1.NewTime(deletedAt.Add(-time.Second))
	assert.False(t, dataplan.Belongs(data, claim), "the data is older than the claim")
	data.OwnerReferences = append(data.OwnerReferences, metav1.OwnerReference{Kind: infrav1.Metal3DataClaimKind, Name: "claim", UID: "now"})
	assert.True(t, dataplan.Belongs(data, claim))
	data.OwnerReferences[1].UID = "former"
	assert.False(t, dataplan.Belongs(data, claim))
}
