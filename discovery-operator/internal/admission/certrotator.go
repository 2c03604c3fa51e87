// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"sync/atomic"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
)

// Names of what the check needs in the cluster. The Secret and the Service are in the operator's namespace.
const (
	ConfigurationName = "baremetalhosts.discovery.muster.io"
	SecretName        = "discovery-operator-webhook"
	ServiceName       = "discovery-operator-webhook"
)

// CertRotator gives the check a certificate that it makes itself, and tells the API server of it. All replicas share one in a Secret; whoever
// finds that it is missing or ends soon replaces it.
type CertRotator struct {
	// Reader reads ValidatingWebhookConfigurations from the cache.
	Reader client.Reader
	// Live reads Secrets, and writes. It has no cache: the operator may not list Secrets.
	Live client.Client
	// Namespace of the operator.
	Namespace string
	// URL is where the API server reaches the check, without path; empty: at the Service.
	URL string

	current atomic.Pointer[tls.Certificate]
}

// +kubebuilder:rbac:groups=admissionregistration.k8s.io,resources=validatingwebhookconfigurations,resourceNames=baremetalhosts.discovery.muster.io,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups="",namespace=muster-discovery-operator,resources=secrets,verbs=create
// +kubebuilder:rbac:groups="",namespace=muster-discovery-operator,resources=secrets,resourceNames=discovery-operator-webhook,verbs=get;update

// SetupWithManager makes the manager call the rotator for changes of the configuration, in every replica.
func (r *CertRotator) SetupWithManager(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).Named("admission").WithOptions(controller.Options{NeedLeaderElection: new(false)}).
		For(&admissionregistrationv1.ValidatingWebhookConfiguration{}).Complete(r)
}

var errNoCertificate = errors.New("there is no certificate yet")

// GetCertificate serves the certificate. It fits tls.Config.
func (r *CertRotator) GetCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	if pair := r.current.Load(); pair != nil {
		return pair, nil
	}
	return nil, errNoCertificate
}

// Reconcile takes the certificate over from the Secret, replaces one that ends soon, and tells the API server.
func (r *CertRotator) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	var config admissionregistrationv1.ValidatingWebhookConfiguration
	if err := r.Reader.Get(ctx, req.NamespacedName, &config); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	pair, bundle, err := r.certificate(ctx)
	if err != nil {
		return ctrl.Result{}, err
	}
	r.current.Store(pair)
	if err := r.tell(ctx, &config, bundle); err != nil {
		return ctrl.Result{}, err
	}
	return ctrl.Result{RequeueAfter: max(time.Second, min(again, time.Until(renewal(pair))))}, nil
}

// certificate reads the Secret, or makes it.
func (r *CertRotator) certificate(ctx context.Context) (pair *tls.Certificate, bundle []byte, err error) {
	hosts, err := r.hosts()
	if err != nil {
		return nil, nil, err
	}
	secret := corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: r.Namespace, Name: SecretName}}
	err = r.Live.Get(ctx, client.ObjectKeyFromObject(&secret), &secret)
	if client.IgnoreNotFound(err) != nil {
		return nil, nil, fmt.Errorf("reading Secret %s: %w", SecretName, err)
	}
	missing := apierrors.IsNotFound(err)
	now := time.Now()
	if pair := usable(now, secret.Data, hosts); pair != nil {
		return pair, secret.Data[keyCA], nil
	}
	if secret.Data, err = issue(now, secret.Data, hosts); err != nil {
		return nil, nil, err
	}
	// Another replica may have done the same: its certificate counts, and is read by the next attempt.
	if missing {
		secret.Type = corev1.SecretTypeTLS
		err = r.Live.Create(ctx, &secret)
	} else {
		err = r.Live.Update(ctx, &secret)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("writing Secret %s: %w", SecretName, err)
	}
	return usable(now, secret.Data, hosts), secret.Data[keyCA], nil
}

// hosts are the names under which the API server reaches the check.
func (r *CertRotator) hosts() ([]string, error) {
	if r.URL == "" {
		return []string{ServiceName + "." + r.Namespace + ".svc"}, nil
	}
	u, err := url.Parse(r.URL)
	if err != nil {
		return nil, fmt.Errorf("reading the URL of the check: %w", err)
	}
	return []string{u.Hostname()}, nil
}

// tell writes the address and the authority into the configuration, unless they are there.
func (r *CertRotator) tell(ctx context.Context, config *admissionregistrationv1.ValidatingWebhookConfiguration, bundle []byte) error {
	wanted := admissionregistrationv1.WebhookClientConfig{CABundle: bundle}
	if r.URL != "" {
		wanted.URL = new(r.URL + Path)
	} else {
		wanted.Service = &admissionregistrationv1.ServiceReference{
			Namespace: r.Namespace, Name: ServiceName, Path: new(Path), Port: new(int32(443)),
		}
	}
	var patch []map[string]any
	for i := range config.Webhooks {
		if !same(config.Webhooks[i].ClientConfig, wanted) {
			at := fmt.Sprintf("/webhooks/%d", i)
			patch = append(patch,
				map[string]any{"op": "test", "path": at + "/name", "value": config.Webhooks[i].Name},
				map[string]any{"op": "replace", "path": at + "/clientConfig", "value": wanted})
		}
	}
	if len(patch) == 0 {
		return nil
	}
	data, err := json.Marshal(patch)
	if err == nil {
		err = r.Live.Patch(ctx, config, client.RawPatch(types.JSONPatchType, data))
	}
	if err != nil {
		return fmt.Errorf("telling the API server of the certificate: %w", err)
	}
	return nil
}

func same(a, b admissionregistrationv1.WebhookClientConfig) bool {
	if !bytes.Equal(a.CABundle, b.CABundle) || (a.URL == nil) != (b.URL == nil) || (a.Service == nil) != (b.Service == nil) {
		return false
	}
	if a.URL != nil {
		return *a.URL == *b.URL
	}
	return a.Service == nil || a.Service.Namespace == b.Service.Namespace && a.Service.Name == b.Service.Name
}
