// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/url"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-io/muster/apis/pki"
	"github.com/muster-io/muster/pool-operator/internal/provision"
)

// Lifetimes of what is renewed: the serving certificate and the administrator's.
const (
	servingLifetime = 2 * 365 * 24 * time.Hour
	// renewBefore is how long before its end a certificate is replaced: long enough for users to fetch the kubeconfig again.
	renewBefore = 120 * 24 * time.Hour
)

// Key of the Secret that says, once the cluster has been ready, that there is data, and the variable of etcd's container that has it.
const (
	stateKey      = "etcd-initial-cluster-state"
	stateExisting = "existing"
	stateVariable = "ETCD_INITIAL_CLUSTER_STATE"
)

// unrecorded says whether nothing says yet that a cluster, which is ready, has data.
func (f found) unrecorded() bool {
	return f.served != nil && !legacy(f.secret) && string(f.served.Data[stateKey]) != stateExisting
}

// recordData says that a cluster has data, which etcd needs from then on.
func (r *Runtime) recordData(ctx context.Context, f found) error {
	recorded := f.served.DeepCopy()
	if recorded.Data == nil {
		recorded.Data = map[string][]byte{}
	}
	recorded.Data[stateKey] = []byte(stateExisting)
	return r.options.Client.Patch(ctx, recorded, client.MergeFromWithOptions(f.served, client.MergeFromWithOptimisticLock{}), client.FieldOwner(FieldOwner))
}

// legacy says whether the identity was made with certificates in it, before these were renewed. It goes on with them.
func legacy(identity *corev1.Secret) bool { return len(identity.Data["apiserver.crt"]) > 0 }

// serving returns the Secret with what clients use: the identity itself where it is legacy, nil when there is none.
func (f found) serving() *corev1.Secret {
	if f.secret != nil && legacy(f.secret) {
		return f.secret
	}
	return f.served
}

// outdated says whether the cluster needs a new certificate: it has none for the address, or one that ends soon, or that is not valid yet, as when the clock was ahead.
func (r *Runtime) outdated(f found, address *url.URL) bool {
	switch {
	case f.secret == nil || legacy(f.secret) || address == nil:
		return false
	case f.served == nil || string(f.served.Data[urlKey]) != address.String() || !bytes.Equal(f.served.Data["ca.crt"], f.secret.Data["ca.crt"]):
		return true
	}
	for _, file := range []string{"apiserver.crt", "admin.crt"} {
		certificate, err := pki.ParseCertificate(f.served.Data[file])
		if now := r.options.Now(); err != nil || now.After(certificate.NotAfter.Add(-renewBefore)) || now.Before(certificate.NotBefore) {
			return true
		}
	}
	return false
}

// Renew implements the port.
func (r *Runtime) Renew(ctx context.Context, ref provision.ClusterRef, _ provision.Spec) error {
	return r.record(ref, "renewing the certificates of", r.renew(ctx, ref))
}

func (r *Runtime) renew(ctx context.Context, ref provision.ClusterRef) error {
	f, err := r.look(ctx, ref)
	if err != nil || f.secret == nil {
		return err
	}
	if f, err = r.mended(ctx, ref, f); err != nil || f.secret == nil {
		return err
	}
	if f.service == nil && !f.wanted() {
		return nil // the next start makes it
	}
	if legacy(f.secret) {
		if f.leads(ref) {
			return nil
		}
		return r.expose(ctx, ref, f.secret, f.service)
	}
	if !f.leads(ref) || !r.options.exposed(ref, f) {
		if err := r.expose(ctx, ref, f.secret, f.service); err != nil {
			return err
		}
		if f, err = r.look(ctx, ref); err != nil || f.secret == nil || f.service == nil {
			return err
		}
	}
	address, err := r.options.address(ref, f)
	if errors.Is(err, errNoAddress) {
		return nil // the next observation says so
	}
	if err != nil {
		return err
	}
	if !r.outdated(f, address) {
		return nil
	}
	files, err := newServing(r.options.Now(), ref, address, f.secret)
	if err != nil {
		return err
	}
	secret := &corev1.Secret{ObjectMeta: named(ref, ref.ServingName()), Data: files}
	secret.Labels, secret.Annotations = labelsOf(ref), map[string]string{NameAnnotation: ref.Name}
	if f.served == nil {
		err = r.options.Client.Create(ctx, secret, client.FieldOwner(FieldOwner))
		if apierrors.IsAlreadyExists(err) {
			return nil // another replica was faster, which the next observation shows
		}
		return err
	}
	if state, recorded := f.served.Data[stateKey]; recorded {
		files[stateKey] = state
	}
	secret.ResourceVersion, secret.UID = f.served.ResourceVersion, f.served.UID
	before := f.served.DeepCopy()
	return r.options.Client.Patch(ctx, secret, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}), client.FieldOwner(FieldOwner))
}

// mended makes the network policy and the StatefulSet of a cluster what they were made as, records that it has data, and returns what there is then.
func (r *Runtime) mended(ctx context.Context, ref provision.ClusterRef, f found) (found, error) {
	if !f.isolated(ref) {
		if err := r.isolate(ctx, ref); err != nil {
			return f, err
		}
	}
	if f.scaled() || f.deletesVolume() || f.unguarded() {
		guard := f.unguarded()
		if err := r.edit(ctx, ref, func(spec *appsv1.StatefulSetSpec) { mend(spec, ref, guard) }); err != nil {
			return f, err
		}
	}
	if f.judge().State != provision.StateReady || !f.unrecorded() {
		return f, nil
	}
	if err := r.recordData(ctx, f); err != nil {
		return f, err
	}
	return r.look(ctx, ref)
}

// newServing makes what a cluster is reached with at the address.
func newServing(now time.Time, ref provision.ClusterRef, address *url.URL, identity *corev1.Secret) (map[string][]byte, error) {
	service := objectName(ref)
	files, err := newLeaves(now, identity.Data, []string{
		service, service + "." + ref.Namespace, service + "." + ref.Namespace + ".svc", service + "." + ref.Namespace + ".svc.cluster.local", address.Hostname(),
	})
	if err != nil {
		return nil, err
	}
	files["ca.crt"] = identity.Data["ca.crt"]
	files[urlKey] = []byte(address.String())
	config := kubeconfig(namesOf(identity).ClusterName, address.String(), files["ca.crt"], adminOf(files))
	if files[kubeconfigKey], err = clientcmd.Write(config); err != nil {
		return nil, fmt.Errorf("encoding the kubeconfig: %w", err)
	}
	return files, nil
}
