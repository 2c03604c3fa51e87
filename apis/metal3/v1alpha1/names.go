// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// Annotations and finalizers that other operators share.
const (
	// PausedAnnotation stops every operator that manages hosts. Only who set it removes it.
	PausedAnnotation = "baremetalhost.metal3.io/paused"
	// StatusAnnotation holds a whole status as JSON, restored once when the host has none.
	StatusAnnotation = "baremetalhost.metal3.io/status"
	// HardwareDetailsAnnotation holds HardwareDetails as JSON; it is accepted only while inspection is disabled.
	HardwareDetailsAnnotation = "inspect.metal3.io/hardwaredetails"
	// InspectAnnotation asks for the machine to be inspected again; it goes when that is done. Set to "disabled" it is the old form of
	// spec.inspectionMode.
	InspectAnnotation = "inspect.metal3.io"
	// RebootAnnotation, alone or followed by "/<key>", asks for a reboot.
	RebootAnnotation = "reboot.metal3.io"
	// DetachedAnnotation takes a host out of management without deleting it.
	DetachedAnnotation = "baremetalhost.metal3.io/detached"
	// DeleteForMoveAnnotation is what "clusterctl move" writes on a host that it has made in another cluster and deletes here, in the place of all its annotations: a pause among them.
	DeleteForMoveAnnotation = "clusterctl.cluster.x-k8s.io/delete-for-move"
	// BareMetalHostFinalizer is held by the operator that manages a host.
	BareMetalHostFinalizer = "baremetalhost.metal3.io"
	// HardwareDataFinalizer is what baremetal-operator puts on each HardwareData that it makes. It goes with the host.
	HardwareDataFinalizer = BareMetalHostFinalizer + "/hardwareData"
	// SecretFinalizer is what baremetal-operator puts on the Secrets with the credentials of management controllers, and with network data for ramdisks.
	SecretFinalizer = BareMetalHostFinalizer + "/secret"
	// DataImageFinalizer is what baremetal-operator puts on each DataImage of a host.
	DataImageFinalizer = "dataimage.metal3.io"
	// PreprovisioningImageFinalizer is what baremetal-operator puts on the PreprovisioningImage that it makes of a host, and BuiltImageFinalizer what its controller of these puts there.
	PreprovisioningImageFinalizer = BareMetalHostFinalizer + "/preprovisioningImage"
	BuiltImageFinalizer           = "preprovisioningimage.metal3.io"
)

// Names that discovery uses on hosts and reservations.
const (
	// DiscoveryPausedValue is the value of PausedAnnotation while discovery holds a host.
	DiscoveryPausedValue = "discovery.metal3.io"
	// DiscoveryFinalizer is held from discovery to hand-over, so that the node in Ironic goes with the host.
	DiscoveryFinalizer = "discovery.metal3.io/node"
	// DiscoveredByLabel names the BareMetalHostDiscovery that made the host. Hosts without it are never changed.
	DiscoveredByLabel = "discovery.metal3.io/discovered-by"
	// DiscoveryLabel and ReasonLabel of a DiscoveredMachine are its spec.discovery and spec.reason, to select by.
	DiscoveryLabel = "discovery.metal3.io/discovery"
	ReasonLabel    = "discovery.metal3.io/reason"
	// ApprovalLabel is "pending" until a user approves the host, then "approved".
	ApprovalLabel = "discovery.metal3.io/approval"
	// ApprovedAnnotation set to "true" by a user releases a host of a resource with Manual approval.
	ApprovedAnnotation = "discovery.metal3.io/approved"
	// ApprovedByAnnotation of a Lease is the user who approved its host, as the API server knows the user.
	ApprovedByAnnotation = "discovery.metal3.io/approved-by"
	// NodeAnnotation is the UUID of the node in Ironic that the host was made for. On a host it is a hint for people; on a reservation it
	// says which node the host may act on.
	NodeAnnotation = "discovery.metal3.io/node"
	// NameDetailAnnotation says which detail of the hardware gave the host its name.
	NameDetailAnnotation = "discovery.metal3.io/name-from"
	// BootMACRuleAnnotation says which rule chose the boot MAC.
	BootMACRuleAnnotation = "discovery.metal3.io/boot-mac-from"
	// BMCAnnotation is the address of the management controller as the machine reported it. It is shown, and never used with
	// credentials.
	BMCAnnotation = "discovery.metal3.io/reported-bmc-address"
	// SerialAnnotation keeps the serial number that the machine reported, as far as it identifies the machine.
	SerialAnnotation = "discovery.metal3.io/reported-serial-number"
	// LastSeenAnnotation is when the machine last reported, in RFC 3339.
	LastSeenAnnotation = "discovery.metal3.io/last-seen"
	// KeepNodeAnnotation set to "true" leaves the node in Ironic when the host is deleted.
	KeepNodeAnnotation = "discovery.metal3.io/keep-node"
	// ReservedBMCAnnotation of a Lease is the management controller that it reserves.
	ReservedBMCAnnotation = "discovery.metal3.io/bmc"
	// CutAnnotation names what the machine reported and the host leaves out, because it was too long or too much.
	CutAnnotation = "discovery.metal3.io/hardware-cut"
	// IronicAnnotation holds the spec.ironic, as JSON, of the resource that made the host; absent for the operator's own Ironic. On a
	// reservation it says which Ironic knows the node.
	IronicAnnotation = "discovery.metal3.io/ironic"
	// ReservationLabel marks the Leases that reserve a boot MAC.
	ReservationLabel = "discovery.metal3.io/reservation"
	// IgnoredLabel marks a reservation whose machine shall not become a host again.
	IgnoredLabel = "discovery.metal3.io/ignored"
	// HostAnnotation names, as namespace/name, the host that a reservation is for.
	HostAnnotation = "discovery.metal3.io/host"
	// HostUIDAnnotation is the UID of that host, where it was there before the reservation.
	HostUIDAnnotation = "discovery.metal3.io/host-uid"
	// OnDeletionAnnotation says what becomes of a reservation when its host is deleted: Release or Ignore.
	OnDeletionAnnotation = "discovery.metal3.io/on-deletion"
)
