// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package webhookcert gives the webhooks of an operator a certificate that the operator makes and renews itself, and tells the API server of it.
package webhookcert

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
)

// CertRotator gives a webhook its certificate, and tells the API server of it. All replicas share one in a Secret; the replica that finds that it is missing or ends
// soon replaces it.
type CertRotator struct {
	// Live reads and writes the target and the Secret. It has no cache: an operator may not list Secrets.
	Live client.Client
	// Target tells the API server of the webhook.
	Target Target
	// Namespace of the operator, its Service and its Secret.
	Namespace string
	// Name of the Service and of the Secret.
	Name string
	// URL is where the API server reaches the webhook, without path; empty: at the Service.
	URL string

	current atomic.Pointer[tls.Certificate]
	written dispute
}

// SetupWithManager makes the manager call the rotator for changes of the target, in every replica. The manager's cache keeps metadata of the target's kind.
func (r *CertRotator) SetupWithManager(mgr ctrl.Manager, name string) error {
	target := &metav1.PartialObjectMetadata{}
	target.SetGroupVersionKind(r.Target.Kind())
	named := predicate.NewPredicateFuncs(func(object client.Object) bool { return object.GetName() == r.Target.Name() })
	err := ctrl.NewControllerManagedBy(mgr).Named(name).WithOptions(controller.Options{NeedLeaderElection: new(false)}).
		For(target, builder.OnlyMetadata, builder.WithPredicates(named)).Complete(r)
	if err != nil {
		return fmt.Errorf("building the controller %s: %w", name, err)
	}
	return nil
}

// Prepare makes the certificate, and tells the API server of it, before the manager starts: its caches may need the webhook. A target that is not there yet is no error.
func (r *CertRotator) Prepare(ctx context.Context) error {
	raced := func(err error) bool {
		return apierrors.IsAlreadyExists(err) || apierrors.IsConflict(err) || apierrors.IsInvalid(err)
	}
	return retry.OnError(retry.DefaultBackoff, raced, func() error {
		_, err := r.Reconcile(ctx, ctrl.Request{NamespacedName: types.NamespacedName{Name: r.Target.Name()}})
		return err
	})
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
	target := r.Target.New()
	if err := r.Live.Get(ctx, req.NamespacedName, target); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	pair, bundle, err := r.certificate(ctx)
	if err != nil {
		return ctrl.Result{}, err
	}
	r.current.Store(pair)
	pause, err := r.tell(ctx, target, bundle)
	if err != nil || pause > 0 {
		return ctrl.Result{RequeueAfter: pause}, err
	}
	return ctrl.Result{RequeueAfter: max(time.Second, min(again, time.Until(renewal(pair))))}, nil
}

// certificate reads the Secret, or makes it.
func (r *CertRotator) certificate(ctx context.Context) (pair *tls.Certificate, bundle []byte, err error) {
	hosts, err := r.hosts()
	if err != nil {
		return nil, nil, err
	}
	secret := corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: r.Namespace, Name: r.Name}}
	err = r.Live.Get(ctx, client.ObjectKeyFromObject(&secret), &secret)
	if client.IgnoreNotFound(err) != nil {
		return nil, nil, fmt.Errorf("reading Secret %s: %w", r.Name, err)
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
		return nil, nil, fmt.Errorf("writing Secret %s: %w", r.Name, err)
	}
	return usable(now, secret.Data, hosts), secret.Data[keyCA], nil
}

// hosts are the names under which the API server reaches the webhook.
func (r *CertRotator) hosts() ([]string, error) {
	if r.URL == "" {
		return []string{r.Name + "." + r.Namespace + ".svc"}, nil
	}
	u, err := url.Parse(r.URL)
	if err != nil {
		return nil, fmt.Errorf("reading the URL of the webhook: %w", err)
	}
	return []string{u.Hostname()}, nil
}

// tell writes the address and the authority into the target, unless they are there. It returns how long to wait where another client has just changed them back.
func (r *CertRotator) tell(ctx context.Context, target client.Object, bundle []byte) (pause time.Duration, err error) {
	wanted := ClientConfig{CABundle: bundle, Service: Service{Namespace: r.Namespace, Name: r.Name, Path: r.Target.Path()}}
	if r.URL != "" {
		wanted.URL = r.URL + r.Target.Path()
	}
	patch := r.Target.Patch(target, wanted)
	if len(patch) == 0 {
		return 0, nil
	}
	if pause = r.written.pause(time.Now()); pause > 0 {
		ctrl.LoggerFrom(ctx).Error(errDispute, "waiting before the webhook is written again", "kind", r.Target.Kind().Kind, "name", r.Target.Name(),
			"service", r.Namespace+"/"+r.Name, "pause", pause.String())
		return pause, nil
	}
	data, err := json.Marshal(patch)
	if err == nil {
		err = r.Live.Patch(ctx, target, client.RawPatch(types.JSONPatchType, data))
	}
	if err != nil {
		return 0, fmt.Errorf("telling the API server of the certificate: %w", err)
	}
	r.written.add(time.Now())
	return 0, nil
}

var errDispute = errors.New("another client changes the address or the authority of the webhook back, such as a GitOps tool whose manifest has another namespace, or a second operator: let one of them write it")

const (
	// longestPause is between two writes of a target that another client changes back each time.
	longestPause = time.Minute
	// settled is for how long a target stays as it was written before the next write is the first one again.
	settled = 10 * longestPause
)

// dispute paces the writes of a target that another client changes back. Each of them makes the API server end all watches of the kind that a definition is of.
type dispute struct {
	last   time.Time
	writes int
}

func (d *dispute) add(now time.Time) { d.last, d.writes = now, d.writes+1 }

// pause is the time until the next write.
func (d *dispute) pause(now time.Time) time.Duration {
	since := now.Sub(d.last)
	if d.writes == 0 || since > settled {
		d.writes = 0
		return 0
	}
	pause := longestPause
	if d.writes <= 6 {
		pause = time.Second << (d.writes - 1)
	}
	return max(0, pause-since)
}
