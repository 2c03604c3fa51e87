// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package v1beta1

import corev1 "k8s.io/api/core/v1"

// Kinds of this group.
const (
	// Metal3DataTemplateKind is the kind of a template.
	Metal3DataTemplateKind = "Metal3DataTemplate"
	// Metal3DataClaimKind is the kind of a claim.
	Metal3DataClaimKind = "Metal3DataClaim"
	// Metal3DataKind is the kind of what a claim gets.
	Metal3DataKind = "Metal3Data"
	// Metal3MachineKind is the kind of the machine that a claim is usually for. Another provider owns it.
	Metal3MachineKind = "Metal3Machine"
)

// Finalizers on objects of this group, and on what is claimed for them.
const (
	// TemplateFinalizer keeps a template while it has data.
	TemplateFinalizer = "metal3datatemplate.infrastructure.cluster.x-k8s.io"
	// ClaimFinalizer keeps a claim until its data is gone.
	ClaimFinalizer = "metal3dataclaim.infrastructure.cluster.x-k8s.io"
	// DataFinalizer keeps a Metal3Data until its addresses are given back, and an IPClaim until its Metal3Data releases it.
	DataFinalizer = "metal3data.infrastructure.cluster.x-k8s.io"
)

// Type, keys and names of rendered Secrets.
const (
	// SecretType is the type of rendered Secrets.
	SecretType corev1.SecretType = "infrastructure.cluster.x-k8s.io/secret"
	// MetaDataKey is the key of the rendered metadata in its Secret.
	MetaDataKey = "metaData"
	// NetworkDataKey is the key of the rendered network data in its Secret.
	NetworkDataKey = "networkData"
	// MetaDataSuffix follows the name of the machine in the name of the Secret with the metadata.
	MetaDataSuffix = "-metadata"
	// NetworkDataSuffix follows the name of the machine in the name of the Secret with the network data.
	NetworkDataSuffix = "-networkdata"
)

// HostAnnotation on a Metal3Machine names the BareMetalHost that it runs on, as namespace/name.
const HostAnnotation = "metal3.io/BareMetalHost"
