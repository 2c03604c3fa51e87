// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/kubernetes"
	certificateslisters "k8s.io/client-go/listers/certificates/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-io/muster/agent-service/internal/domain"
)

const (
	// resync is how often everything is looked at again without an event.
	resync = 10 * time.Minute
	// Bounds of the pause after a failure.
	firstRetry = 200 * time.Millisecond
	lastRetry  = 30 * time.Second
)

// Reason of the conditions that a Watcher sets on certificate requests.
const reason = "AgentService"

// Watcher decides about the certificate requests of one cluster, and labels its Nodes, for as long as its context lasts. It watches Nodes and certificate requests.
type Watcher struct {
	cluster  kubernetes.Interface
	requests certificateslisters.CertificateSigningRequestLister
	nodes    corelisters.NodeLister
	queue    workqueue.TypedRateLimitingInterface[string]
	// synced says whether the Nodes of the cluster were read.
	synced func() bool
	// approved is called with each certificate that was approved.
	approved func(ctx context.Context, machine Machine, certificate domain.Certificate)
	log      logr.Logger

	mu       sync.Mutex
	machines []Machine
	// tooMuch is why a cluster is not watched that has more than the service takes in.
	tooMuch error
	// forgotten are tokens that were deleted, because their nodes are Ready.
	forgotten map[string]bool
	// made is when this Watcher made tokens.
	made map[string]time.Time
}

// Watch begins to decide. It returns at once; the caches fill in the background, however long the cluster is away. It calls changed, which must not block,
// when a Node may have become Ready, or not Ready any more, and approved with each certificate that it approved.
func Watch(ctx context.Context, access *Access, log logr.Logger, changed func(), approved func(context.Context, Machine, domain.Certificate)) (*Watcher, error) {
	cluster, err := access.Client()
	if err != nil {
		return nil, err
	}
	w := &Watcher{
		cluster: cluster, log: log, approved: approved, forgotten: map[string]bool{}, made: map[string]time.Time{},
		queue: workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[string](firstRetry, lastRetry)),
	}
	requests, err := requestsOf(cluster).informer(&certificatesv1.CertificateSigningRequest{}, w.unread)
	if err != nil {
		return nil, fmt.Errorf("watching the certificate requests of a cluster: %w", err)
	}
	nodes, err := nodesOf(cluster).informer(&corev1.Node{}, w.unread)
	if err != nil {
		return nil, fmt.Errorf("watching the Nodes of a cluster: %w", err)
	}
	w.requests, w.nodes = certificateslisters.NewCertificateSigningRequestLister(requests.GetIndexer()), corelisters.NewNodeLister(nodes.GetIndexer())
	enqueue := func(object any) {
		if request, ok := object.(*certificatesv1.CertificateSigningRequest); ok && !decided(request) {
			w.queue.Add(request.Name)
		}
	}
	joined := func(object any) {
		if node, ok := object.(*corev1.Node); ok && ready(node) {
			w.queue.Add(tokensOf)
		}
		w.queue.Add(labelsOf)
	}
	for informer, handlers := range map[cache.SharedIndexInformer]cache.ResourceEventHandlerFuncs{
		requests: {AddFunc: enqueue, UpdateFunc: func(_, object any) { enqueue(object) }},
		nodes: {
			AddFunc: func(object any) { joined(object); changed() },
			UpdateFunc: func(before, object any) {
				joined(object)
				was, ok := before.(*corev1.Node)
				is, ok2 := object.(*corev1.Node)
				if ok && ok2 && ready(was) != ready(is) {
					changed()
				}
			},
			DeleteFunc: func(any) { changed() },
		},
	} {
		if _, err := informer.AddEventHandler(handlers); err != nil {
			return nil, fmt.Errorf("watching a cluster with nodes: %w", err)
		}
	}
	w.synced = nodes.HasSynced
	go requests.RunWithContext(ctx)
	go nodes.RunWithContext(ctx)
	context.AfterFunc(ctx, w.queue.ShutDown)
	go func() {
		if cache.WaitForCacheSync(ctx.Done(), requests.HasSynced, nodes.HasSynced) {
			w.work(ctx)
		}
	}()
	return w, nil
}

// unread takes notice of why a cluster cannot be watched.
func (w *Watcher) unread(err error) {
	if !errors.Is(err, ErrTooMuch) {
		return // it is away, which the pools of its machines say
	}
	w.log.Info("cluster is not watched, trying again", "why", err.Error())
	w.mu.Lock()
	defer w.mu.Unlock()
	w.tooMuch = err
}

// TooMuch returns why the cluster could not be watched since the last call, if it has more than the service takes in.
func (w *Watcher) TooMuch() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	err := w.tooMuch
	w.tooMuch = nil
	return err
}

// tokensOf is the item of the queue that stands for tokens of machines that join or have joined; no certificate request has that name.
const tokensOf = "/tokens"

// Expect states the machines of the cluster, and looks at open requests again.
func (w *Watcher) Expect(machines []Machine) {
	w.mu.Lock()
	w.machines = machines
	gone := func(id string) bool {
		return !slices.ContainsFunc(machines, func(m Machine) bool { return m.TokenID == id })
	}
	maps.DeleteFunc(w.forgotten, func(id string, _ bool) bool { return gone(id) })
	maps.DeleteFunc(w.made, func(id string, _ time.Time) bool { return gone(id) })
	for _, machine := range machines {
		if !w.tokenEnds(machine) { // it has, or will get, a token again
			delete(w.forgotten, machine.TokenID)
		}
	}
	w.mu.Unlock()
	open, err := w.requests.List(labels.Everything())
	if err != nil {
		return // it reads from memory
	}
	for _, request := range open {
		if !decided(request) {
			w.queue.Add(request.Name)
		}
	}
	w.queue.Add(tokensOf)
	w.queue.Add(labelsOf)
}

func (w *Watcher) expected() []Machine {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.machines
}

func (w *Watcher) work(ctx context.Context) {
	for {
		name, shutdown := w.queue.Get()
		if shutdown {
			return
		}
		if err := w.settle(ctx, name); err != nil {
			w.log.Info("certificate request could not be decided, trying again", "request", name, "error", err.Error())
			w.queue.AddRateLimited(name)
		} else {
			w.queue.Forget(name)
		}
		w.queue.Done(name)
	}
}

func (w *Watcher) settle(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	switch name {
	case tokensOf:
		return errors.Join(w.makeTokens(ctx, time.Now()), w.forgetTokens(ctx))
	case labelsOf:
		return w.label(ctx)
	}
	seen, err := w.requests.Get(name)
	if err != nil || decided(seen) || !slices.ContainsFunc(w.expected(), func(m Machine) bool {
		return seen.Spec.Username == bootstrapUser+m.TokenID || seen.Spec.Username == nodeUser+m.NodeName
	}) {
		return nil // it is gone, or concerns no machine
	}
	request, err := w.cluster.CertificatesV1().CertificateSigningRequests().Get(ctx, name, metav1.GetOptions{}) // what is asked for is not kept
	if err != nil {
		return client.IgnoreNotFound(err)
	}
	verdict, why := judge(request, w.expected(), w)
	if verdict == Leave {
		return nil
	}
	return w.decide(ctx, request, verdict, why)
}

// decide writes the verdict. Of two replicas one is refused for the conflict, and finds the request decided.
func (w *Watcher) decide(ctx context.Context, request *certificatesv1.CertificateSigningRequest, verdict Verdict, why string) error {
	kind := certificatesv1.CertificateApproved
	if verdict == Deny {
		kind = certificatesv1.CertificateDenied
	}
	request.Status.Conditions = append(request.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{
		Type: kind, Status: corev1.ConditionTrue, Reason: reason, Message: why, LastUpdateTime: metav1.Now(),
	})
	_, err := w.cluster.CertificatesV1().CertificateSigningRequests().UpdateApproval(ctx, request.Name, request, metav1.UpdateOptions{})
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return nil
	}
	if err == nil && verdict == Approve {
		machine, certificate := about(request, w.expected())
		certificate.ApprovedAt = time.Now()
		w.approved(ctx, machine, certificate)
	}
	if err == nil {
		w.log.Info("certificate request was decided", "request", request.Name, "verdict", verdict, "why", why)
	}
	return err
}

// taken says whether a Node of that name is Ready.
func (w *Watcher) taken(name string) bool {
	node, err := w.nodes.Get(name)
	return err == nil && ready(node)
}

// has says whether there is a Node of that name.
func (w *Watcher) has(name string) bool {
	_, err := w.nodes.Get(name)
	return err == nil
}

// tokenEnds says whether a machine needs its token no more, or may not have it any more.
func (w *Watcher) tokenEnds(machine Machine) bool {
	return w.taken(machine.NodeName) && w.owns(machine) || machine.Rejoins && !w.has(machine.NodeName)
}

// Ready says whether the cluster has a Ready Node of that name. It is not known before the Nodes of the cluster were read.
func (w *Watcher) Ready(name string) (ready, known bool) { return w.taken(name), w.synced() }

// Node says what the cluster knows of the Node of a machine. It is not known before the Nodes of the cluster were read.
func (w *Watcher) Node(machine Machine) (node domain.Node, known bool) {
	node.Name = machine.NodeName
	node.Seen = w.has(node.Name) && w.owns(machine)
	node.Ready = node.Seen && w.taken(node.Name)
	return node, w.synced()
}

func ready(node *corev1.Node) bool {
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady {
			return condition.Status == corev1.ConditionTrue
		}
	}
	return false
}

// makeTokens makes the tokens of machines that were installed before the cluster had an API, and of those that lost their certificate, and renews those of machines that take long to
// join: their disks hold a token that would expire.
func (w *Watcher) makeTokens(ctx context.Context, now time.Time) error {
	for _, machine := range w.expected() {
		w.mu.Lock()
		made := w.made[machine.TokenID]
		w.mu.Unlock()
		if made.Before(machine.TokenMadeAt) {
			made = machine.TokenMadeAt
		}
		if machine.MakeToken == nil || w.tokenEnds(machine) || now.Sub(made) < tokenRenewal {
			continue
		}
		if err := machine.MakeToken(ctx, w.cluster); err != nil {
			return fmt.Errorf("making the bootstrap token of node %s: %w", machine.NodeName, err)
		}
		w.mu.Lock()
		w.made[machine.TokenID] = now
		w.mu.Unlock()
	}
	return nil
}

// forgetTokens deletes the tokens of machines that are nodes now, and of those that are not to be nodes again.
func (w *Watcher) forgetTokens(ctx context.Context) error {
	for _, machine := range w.expected() {
		w.mu.Lock()
		done := w.forgotten[machine.TokenID]
		w.mu.Unlock()
		if done || !w.tokenEnds(machine) {
			continue
		}
		err := w.cluster.CoreV1().Secrets(metav1.NamespaceSystem).Delete(ctx, secretName(machine.TokenID), metav1.DeleteOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("deleting the bootstrap token of node %s: %w", machine.NodeName, err)
		}
		w.mu.Lock()
		w.forgotten[machine.TokenID] = true
		w.mu.Unlock()
	}
	return nil
}
