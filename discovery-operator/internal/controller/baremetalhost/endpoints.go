// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package baremetalhost

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	metal3v1 "github.com/muster-io/muster/apis/metal3/v1alpha1"
	"github.com/muster-io/muster/discovery-operator/internal/handover"
	"github.com/muster-io/muster/discovery-operator/internal/hoststate"
	"github.com/muster-io/muster/discovery-operator/internal/inventory"
)

const (
	// workers is how many hosts are worked on at the same time; most of that is waiting for Ironic.
	workers = 64
	// atOnce is how many hosts of one Ironic are worked on at the same time, so that an Ironic that does not answer leaves workers to others.
	atOnce = 8
	// probeTimeout is how long a host waits for the answer to the request that asks whether an Ironic answers, and lateAnswer is how long the answer is waited for
	// without the host: as long as for that to any request.
	probeTimeout, lateAnswer = 5 * time.Second, 30 * time.Second
	// maxAway is how long an Ironic that did not answer is not asked again.
	maxAway = 5 * time.Second
	// idleTime is how long an Ironic is remembered that no host asks. Hosts that wait ask again sooner by themselves.
	idleTime = 10 * time.Minute
)

// endpoints limits how many hosts ask each Ironic, with whatever credentials. An Ironic that has not answered yet, or did not answer last time, is asked by one host
// at a time with each set of credentials, with one short request; all others wait without a worker. Users choose which Ironics their hosts name, and how many: the hosts of a
// namespace never have more workers than are left to other namespaces.
type endpoints struct {
	// wake carries the hosts whose turn it is.
	wake chan event.TypedGenericEvent[*metal3v1.BareMetalHost]

	mu   sync.Mutex
	list map[string]*endpoint
	// running is how many hosts are worked on, ironics and namespaces how many of each.
	running             int
	ironics, namespaces map[string]int
	// parked says for which Ironic a host waits. A host waits for one: users can change which one it names.
	parked map[types.NamespacedName]*endpoint
	// crowded are those of them that wait for others of their namespace.
	crowded map[types.NamespacedName]bool
	// swept is when Ironics that no host asks were last removed.
	swept time.Time
}

var errCredentials = &inventory.EndpointError{Problem: inventory.ProblemCredentials}

// endpoint is one Ironic, asked with one set of credentials.
type endpoint struct {
	// ironic is the same for all sets of credentials of one Ironic.
	ironic string
	// answers says that Ironic answered last time.
	answers, probing bool
	running          int
	// used is when a host last asked, or ended a visit.
	used time.Time
	// err is why Ironic does not serve, and again when it is asked again.
	err      error
	failures int
	again    time.Time
	// parked are the hosts that wait for their turn, or for Ironic.
	parked map[types.NamespacedName]bool
}

func newEndpoints() *endpoints {
	return &endpoints{
		wake: make(chan event.TypedGenericEvent[*metal3v1.BareMetalHost], 2*workers), list: map[string]*endpoint{}, ironics: map[string]int{}, namespaces: map[string]int{},
		parked: map[types.NamespacedName]*endpoint{}, crowded: map[types.NamespacedName]bool{},
	}
}

// admission is a host's turn at an Ironic. With probe, the host asks first whether Ironic answers.
type admission struct {
	*endpoint
	namespace string
	probe     bool
}

// enter admits a host to an Ironic. Each admission ends with leave. It returns ErrLater when others are before the host, and why Ironic does not serve
// when that is known.
func (s *endpoints) enter(a inventory.Address, host types.NamespacedName, now time.Time) (t *admission, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sweep(now)
	key := a.View + " " + a.Session
	e := s.list[key]
	if e == nil {
		e = &endpoint{ironic: a.Ironic, parked: map[types.NamespacedName]bool{}}
		s.list[key] = e
	}
	e.used = now
	s.unpark(host)
	room, fair := s.ironics[e.ironic] < atOnce, s.fair(host.Namespace)
	t = &admission{endpoint: e, namespace: host.Namespace}
	switch {
	case e.answers && room && fair:
	case e.answers:
		err = hoststate.ErrLater
	case !e.probing && !now.Before(e.again) && room && fair:
		e.probing, t.probe = true, true
	case e.err != nil:
		err = e.err
	default:
		err = hoststate.ErrLater
	}
	if err != nil {
		e.parked[host], s.parked[host] = true, e
		if room && !fair {
			s.crowded[host] = true
		}
		return nil, err
	}
	s.count(t, 1)
	return t, nil
}

// count counts an admission that begins or ends. The lock is held.
func (s *endpoints) count(t *admission, by int) {
	t.running += by
	s.running += by
	for _, n := range []struct {
		of  map[string]int
		key string
	}{{s.ironics, t.ironic}, {s.namespaces, t.namespace}} {
		if n.of[n.key] += by; n.of[n.key] == 0 {
			delete(n.of, n.key)
		}
	}
}

// fair reports whether more hosts of a namespace may be worked on. The lock is held.
func (s *endpoints) fair(namespace string) bool { return s.namespaces[namespace] < workers-s.running }

// leave ends an admission and says how Ironic answered. It wakes hosts whose turn it is.
func (s *endpoints) leave(t *admission, err error, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := t.endpoint
	e.used = now
	s.count(t, -1)
	if t.probe {
		e.probing = false
	}
	switch {
	case t.probe && e.answers: // an earlier request was answered meanwhile
	case !t.probe && errors.Is(err, errCredentials): // perhaps for this request alone, as by a policy of Ironic: the next host asks before the others
		if e.answers {
			e.answers, e.again = false, now
		}
	case away(err, t.probe):
		e.answers, e.err = false, err
		e.again = now.Add(min(time.Second<<min(e.failures, 10), maxAway))
		e.failures++
		if e.failures == 1 { // those that wait for their turn can say why
			s.call(e, len(e.parked))
		}
	default:
		s.back(e)
	}
	s.callNext(e.ironic)
	for host := range s.crowded { // in no order
		if s.fair(host.Namespace) {
			s.callHost(host)
			return
		}
	}
}

// back notes that Ironic answers, and wakes those that wait for that. The lock is held.
func (s *endpoints) back(e *endpoint) {
	if !e.answers {
		e.answers, e.err, e.failures = true, nil, 0
		s.call(e, len(e.parked))
	}
}

// answered notes that Ironic has answered a request that no host waits for.
func (s *endpoints) answered(e *endpoint) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.back(e)
}

// callNext wakes a host that waits for its turn at an Ironic: of one set of credentials or another, so that one with many hosts leaves turns to the others. The lock is held.
func (s *endpoints) callNext(ironic string) {
	for _, e := range s.list { // in no order
		if e.ironic == ironic && len(e.parked) > 0 && (e.answers || e.err == nil && !e.probing) {
			s.call(e, 1)
			return
		}
	}
}

// forget removes a host that does not exist any more.
func (s *endpoints) forget(host types.NamespacedName) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unpark(host)
}

// unpark makes a host wait for no Ironic. The lock is held.
func (s *endpoints) unpark(host types.NamespacedName) {
	if e := s.parked[host]; e != nil {
		delete(e.parked, host)
		delete(s.parked, host)
		delete(s.crowded, host)
	}
}

// sweep removes Ironics that no host has asked for some time, from time to time. Users choose which Ironics hosts name, and so how many there are. The
// lock is held.
func (s *endpoints) sweep(now time.Time) {
	if now.Sub(s.swept) < idleTime {
		return
	}
	s.swept = now
	for key, e := range s.list {
		if e.running > 0 || now.Sub(e.used) < idleTime {
			continue
		}
		for host := range e.parked {
			s.unpark(host)
		}
		delete(s.list, key)
	}
}

// call wakes so many of the hosts that wait. Those for whom there is no room are woken when others leave. The lock is held.
func (s *endpoints) call(e *endpoint, woken int) {
	for h := range e.parked {
		if woken--; woken < 0 || !s.callHost(h) {
			return
		}
	}
}

// callHost wakes a host that waits. It returns false where too many are woken already. The lock is held.
func (s *endpoints) callHost(h types.NamespacedName) bool {
	host := &metal3v1.BareMetalHost{}
	host.Namespace, host.Name = h.Namespace, h.Name
	select {
	case s.wake <- event.TypedGenericEvent[*metal3v1.BareMetalHost]{Object: host}:
		s.unpark(h)
		return true
	default:
		return false
	}
}

// away reports whether an error says that Ironic serves no client with these credentials at the moment.
func away(err error, probe bool) bool {
	var e *inventory.EndpointError
	if !errors.As(err, &e) {
		return probe && err != nil
	}
	switch e.Problem {
	case inventory.ProblemUnreachable, inventory.ProblemTimedOut, inventory.ProblemCredentials, inventory.ProblemNoSecret, inventory.ProblemNoEndpoint,
		inventory.ProblemTooOld, inventory.ProblemNotShared:
		return true
	default:
		return probe
	}
}

// visit is the Ironic of a host, for one pass. Leave ends the visit with the error that Ironic returned, or nil; only the first call counts.
type visit struct {
	Manager
	leave func(error)
}

// visit admits a host to the Ironic that has its node.
func (r *Reconciler) visit(ctx context.Context, host *metal3v1.BareMetalHost) (*visit, error) {
	var ref *metal3v1.IronicReference
	if data := host.Annotations[metal3v1.IronicAnnotation]; data != "" {
		ref = &metal3v1.IronicReference{}
		if err := json.Unmarshal([]byte(data), ref); err != nil {
			return nil, inventory.Failf(inventory.ProblemNoEndpoint, "the annotation %s cannot be read (%v): set it to the spec.ironic of the BareMetalHostDiscovery, as JSON, or remove it where that has none",
				metal3v1.IronicAnnotation, err)
		}
	}
	address := r.Provisioners.Address(host.Namespace, ref)
	turn, err := r.endpoints.enter(address, client.ObjectKeyFromObject(host), r.Now())
	if err != nil {
		return nil, wrap(err, "connecting to Ironic")
	}
	var once sync.Once
	v := &visit{leave: func(err error) { once.Do(func() { r.endpoints.leave(turn, err, r.Now()) }) }}
	if v.Manager, err = r.Provisioners.Provisioner(ctx, host.Namespace, ref); err == nil && turn.probe {
		if err = r.ask(ctx, v, turn.endpoint, address.Endpoint); err == nil { // others need not wait until this visit ends
			v.leave(nil)
			return r.visit(ctx, host)
		}
	}
	if err != nil {
		v.leave(err)
		return nil, wrap(err, "connecting to Ironic")
	}
	return v, nil
}

// ask asks an Ironic whether it answers. It does not wait long, so that hosts soon say what they wait for. The hosts of an Ironic that takes longer go on when it has
// answered.
func (r *Reconciler) ask(ctx context.Context, ironic Provisioner, e *endpoint, name string) error {
	answer := make(chan error, 1)
	within, cancel := context.WithTimeout(context.WithoutCancel(ctx), lateAnswer)
	go func() {
		defer cancel()
		err := ironic.Enter(within)
		if answer <- err; err == nil {
			r.endpoints.answered(e)
		}
	}()
	timer := time.NewTimer(probeTimeout)
	defer timer.Stop()
	select {
	case err := <-answer:
		return err
	case <-ctx.Done():
		return fmt.Errorf("asking %s: %w", name, ctx.Err())
	case <-timer.C:
		return inventory.Failf(inventory.ProblemTimedOut, "asking %s: no answer in %s", name, probeTimeout)
	}
}

// ironicAway says on a host that its Ironic does not serve, and when it is asked again. Other errors are returned.
func (r *Reconciler) ironicAway(ctx context.Context, host *metal3v1.BareMetalHost, err error) (ctrl.Result, error) {
	var e *inventory.EndpointError
	switch {
	case errors.Is(err, hoststate.ErrLater):
		return ctrl.Result{RequeueAfter: hoststate.ParkedRetry}, nil
	case !errors.As(err, &e):
		return ctrl.Result{}, err
	}
	w := handover.Wait{Reason: string(e.Problem), Message: "Ironic does not serve this host: " + full(e.Text) + " It is asked again every few seconds."}
	if e.Problem == inventory.ProblemRefused {
		w.Reason = metal3v1.ReasonNodeRefused
	}
	if host.DeletionTimestamp != nil {
		w.Message = "The host is deleted after its node. " + w.Message +
			` To delete the host and leave the node, set the annotation ` + metal3v1.KeepNodeAnnotation + ` to "true".`
	}
	return ctrl.Result{RequeueAfter: hoststate.EndpointRetry}, r.say(ctx, host, w)
}

// full ends a text with a full stop.
func full(s string) string { return strings.TrimRight(s, ". ") + "." }
