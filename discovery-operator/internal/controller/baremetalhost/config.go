// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package baremetalhost

import (
	"context"
	"errors"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	metal3v1 "github.com/muster-io/muster/apis/metal3/v1alpha1"
	"github.com/muster-io/muster/apis/outcome"
	"github.com/muster-io/muster/discovery-operator/internal/hoststate"
	"github.com/muster-io/muster/discovery-operator/internal/hoststate/osimage"
	"github.com/muster-io/muster/discovery-operator/internal/inventory"
)

// unchanged fails with ErrBusy when the API server has another version of a host than was read: what rests on that is planned again.
func (r *Reconciler) unchanged(ctx context.Context, host *metal3v1.BareMetalHost) error {
	var present metal3v1.BareMetalHost
	if err := r.Live.Get(ctx, client.ObjectKeyFromObject(host), &present); outcome.IgnoreGone(err) != nil {
		return wrap(err, "reading host %s", client.ObjectKeyFromObject(host))
	}
	if present.UID != host.UID || present.ResourceVersion != host.ResourceVersion {
		return inventory.Failf(inventory.ProblemBusy, "host %s has changed", client.ObjectKeyFromObject(host))
	}
	return nil
}

// configDrive reads the Secrets that a host names for the system that is deployed.
func configDrive(ctx context.Context, live client.Reader, host *metal3v1.BareMetalHost) (osimage.ConfigDrive, error) {
	var texts osimage.ConfigTexts
	for _, part := range []struct {
		ref   *corev1.SecretReference
		field string
		into  *string
	}{
		{host.Spec.UserData, "userData", &texts.UserData},
		{networkData(host), "networkData", &texts.NetworkData},
		{host.Spec.MetaData, "metaData", &texts.MetaData},
	} {
		text, err := configText(ctx, live, host, part.ref, part.field)
		if err != nil {
			return osimage.ConfigDrive{}, err
		}
		*part.into = text
	}
	config, err := osimage.ConfigDriveOf(host, texts)
	if err != nil {
		return config, fmt.Errorf("%w: %w", hoststate.ErrConfig, err)
	}
	return config, nil
}

// networkData names the Secret with the network data of a system: without one of its own it has the network of the ramdisk, unless it is a live ISO.
func networkData(host *metal3v1.BareMetalHost) *corev1.SecretReference {
	if name := host.Spec.PreprovisioningNetworkDataName; host.Spec.NetworkData == nil && name != "" && !osimage.IsLive(host.Spec.Image) {
		return &corev1.SecretReference{Name: name}
	}
	return host.Spec.NetworkData
}

// machine reads what the node of the host has to say of its machine, in a state of the node. It is empty where a machine is in use: what is deployed there runs on as it was
// deployed. A host that goes does without network data that cannot be read: its machine is still to be cleaned where that is possible.
func (e *executor) machine(ctx context.Context, state string) (hoststate.Machine, error) {
	switch state {
	case "", inventory.NodeEnroll, inventory.NodeManageable, inventory.NodeAvailable, hoststate.InspectFailed:
	default:
		return hoststate.Machine{}, nil
	}
	m := hoststate.MachineOf(e.host)
	name := e.host.Spec.PreprovisioningNetworkDataName
	if name == "" {
		return m, nil
	}
	network, err := e.ramdiskNetwork(ctx, name)
	if errors.Is(err, hoststate.ErrNetwork) && e.host.DeletionTimestamp != nil {
		return m, nil
	}
	m.Network = network
	return m, err
}

// ramdiskNetwork reads the network data of ramdisks from a Secret.
func (e *executor) ramdiskNetwork(ctx context.Context, name string) (network map[string]any, err error) {
	var secret corev1.Secret
	err = e.Live.Get(ctx, types.NamespacedName{Namespace: e.host.Namespace, Name: name}, &secret)
	if apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("%w: there is no Secret %s in this namespace, which spec.preprovisioningNetworkDataName names", hoststate.ErrNetwork, name)
	} else if err != nil {
		return nil, wrap(err, "reading the Secret of spec.preprovisioningNetworkDataName of host %s", client.ObjectKeyFromObject(e.host))
	}
	text, ok := secret.Data["networkData"]
	if !ok { // without both, it is in another form
		text = secret.Data["value"]
	}
	if yaml.Unmarshal(text, &network) != nil {
		return nil, fmt.Errorf("%w: in the Secret %s it is not a YAML or JSON object", hoststate.ErrNetwork, name)
	}
	return network, nil
}

// private adds the credentials of the registry of the image to a deployment.
func (e *executor) private(ctx context.Context, d hoststate.Deployment) (hoststate.Deployment, error) {
	name := osimage.PullSecretName(e.host.Spec.Image)
	var secret corev1.Secret
	err := e.Live.Get(ctx, types.NamespacedName{Namespace: e.host.Namespace, Name: name}, &secret)
	if apierrors.IsNotFound(err) {
		return d, fmt.Errorf("%w: there is no Secret %s in this namespace, which spec.image.ociAuthSecretName names", hoststate.ErrConfig, name)
	} else if err != nil {
		return d, wrap(err, "reading the Secret of spec.image.ociAuthSecretName of host %s", client.ObjectKeyFromObject(e.host))
	}
	credentials, err := osimage.PullSecret(secret.Data, e.host.Spec.Image.URL)
	if err != nil {
		return d, fmt.Errorf("%w: the Secret %s opens no registry: %w", hoststate.ErrConfig, name, err)
	}
	d.Info = maps.Clone(d.Info)
	d.Info[hoststate.KeyPullSecret] = credentials
	return d, nil
}

// configText reads one Secret: the key that is named for the field, or "value".
func configText(ctx context.Context, live client.Reader, host *metal3v1.BareMetalHost, ref *corev1.SecretReference, field string) (string, error) {
	if ref == nil || ref.Name == "" {
		return "", nil
	}
	if ref.Namespace != "" && ref.Namespace != host.Namespace {
		return "", fmt.Errorf("%w: the Secret of spec.%s has to be in the namespace of the host", hoststate.ErrConfig, field)
	}
	var secret corev1.Secret
	err := live.Get(ctx, types.NamespacedName{Namespace: host.Namespace, Name: ref.Name}, &secret)
	if apierrors.IsNotFound(err) {
		return "", fmt.Errorf("%w: there is no Secret %s in this namespace, which spec.%s names", hoststate.ErrConfig, ref.Name, field)
	} else if err != nil {
		return "", wrap(err, "reading the Secret of spec.%s of host %s", field, client.ObjectKeyFromObject(host))
	}
	for _, key := range []string{field, "value"} {
		if text, ok := secret.Data[key]; ok {
			return string(text), nil
		}
	}
	if field == "networkData" && host.Spec.NetworkData == nil { // it is in another form, which only ramdisks read
		return "", nil
	}
	return "", fmt.Errorf("%w: the Secret %s has neither the key %s nor value", hoststate.ErrConfig, ref.Name, field)
}
