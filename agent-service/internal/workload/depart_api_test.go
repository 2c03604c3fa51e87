// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// inhabited is a Node with a pod whose kubelet never ends it.
func (w *testEnv) inhabited(t *testing.T, ready corev1.ConditionStatus) *corev1.Node {
	t.Helper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{GenerateName: "node-"}}
	require.NoError(t, w.Create(t.Context(), node))
	before := node.DeepCopy()
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready, Reason: "Test"}}
	require.NoError(t, w.Status().Patch(t.Context(), node, client.MergeFrom(before)))
	namespace := w.deployment.Namespace
	require.Eventually(t, func() bool {
		return w.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "default"}, &corev1.ServiceAccount{}) == nil
	}, patience, 50*time.Millisecond)
	pod := func(name string, change func(*corev1.Pod)) {
		made := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Finalizers: []string{"example.com/stays"}},
			Spec:       corev1.PodSpec{NodeName: node.Name, AutomountServiceAccountToken: new(false), Containers: []corev1.Container{{Name: "c", Image: "i"}}},
		}
		change(made)
		require.NoError(t, w.Create(t.Context(), made))
	}
	pod("web-"+node.Name, func(*corev1.Pod) {})
	pod("daemon-"+node.Name, func(p *corev1.Pod) {
		p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "DaemonSet", Name: "d", UID: "1", Controller: new(true)}}
	})
	return node
}

func TestANodeDeparts(t *testing.T) {
	w := newTestEnv(t, nil)
	cluster, err := kubernetes.NewForConfig(w.config)
	require.NoError(t, err)
	now := time.Now()
	for name, c := range map[string]struct {
		ready        corev1.ConditionStatus
		since, until time.Time
		gone, stays  bool
		says         string
	}{
		"pods are leaving":                     {ready: corev1.ConditionTrue, since: now.Add(time.Hour), until: now.Add(time.Minute)},
		"pods have not left in time":           {ready: corev1.ConditionTrue, since: now.Add(time.Hour), until: now, gone: true, says: "although 1 pods had not left it in time: " + w.deployment.Namespace + "/web-"},
		"a dead machine's pods never leave":    {ready: corev1.ConditionUnknown, since: now.Add(time.Hour), until: now.Add(time.Minute), gone: true},
		"the Node is another host's, made now": {ready: corev1.ConditionTrue, since: now.Add(-time.Hour), until: now, gone: true, stays: true, says: "another host's"},
	} {
		t.Run(name, func(t *testing.T) {
			node := w.inhabited(t, c.ready)
			d := Departure{NodeName: node.Name, TokenID: "abcdef", Since: c.since, DrainUntil: c.until}
			for range 2 { // it can be repeated
				gone, note, err := d.Depart(t.Context(), cluster, now)
				require.NoError(t, err)
				assert.Equal(t, c.gone, gone)
				if !c.gone || c.stays {
					assert.Contains(t, note, c.says)
					continue
				}
				if c.says != "" {
					assert.Contains(t, note, c.says)
				} else {
					assert.Empty(t, note)
				}
				c.says = "" // of what is done nothing is told twice
			}
			err := w.Get(t.Context(), client.ObjectKeyFromObject(node), node)
			if c.gone && !c.stays {
				assert.True(t, apierrors.IsNotFound(err))
				return
			}
			require.NoError(t, err)
			assert.Equal(t, !c.stays, node.Spec.Unschedulable)
		})
	}
}

// A host that never joined has no Node: the one of its name, which was there before, is another machine's, and keeps running. It is the host's where the cluster knows of a certificate
// that the service did not note.
func TestANodeOfAnotherMachineStays(t *testing.T) {
	w := newTestEnv(t, nil)
	cluster, err := kubernetes.NewForConfig(w.config)
	require.NoError(t, err)
	node := w.inhabited(t, corev1.ConditionTrue)
	now := time.Now()
	d := Departure{NodeName: node.Name, TokenID: "bcdefg", Since: now.Add(time.Hour), DrainUntil: now, Unjoined: true}
	own := serves(func(_ *certificatesv1.CertificateSigningRequest, p *x509.CertificateRequest) {
		p.Subject.CommonName = "system:node:" + node.Name
	})(t)
	theirs := w.kubelet(t, "system:node:"+node.Name, []string{"system:nodes"}, own)
	asked := w.kubelet(t, "system:bootstrap:"+d.TokenID, w.bootstrapGroups(t), joins(nil)(t))
	gone, note, err := d.Depart(t.Context(), cluster, now)
	require.NoError(t, err)
	assert.True(t, gone)
	assert.Contains(t, note, "stays: the host got no certificate for it")
	require.NoError(t, w.Get(t.Context(), client.ObjectKeyFromObject(node), node))
	assert.False(t, node.Spec.Unschedulable)
	assert.Equal(t, Leave, w.verdict(theirs))
	assert.Equal(t, Deny, w.verdict(asked))

	late := w.kubelet(t, "system:bootstrap:"+d.TokenID, w.bootstrapGroups(t), joins(nil)(t))
	late.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue, Reason: "Test", LastUpdateTime: metav1.Now()}}
	_, err = cluster.CertificatesV1().CertificateSigningRequests().UpdateApproval(t.Context(), late.Name, late, metav1.UpdateOptions{})
	require.NoError(t, err)
	gone, _, err = d.Depart(t.Context(), cluster, now)
	require.NoError(t, err)
	assert.True(t, gone)
	assert.True(t, apierrors.IsNotFound(w.Get(t.Context(), client.ObjectKeyFromObject(node), node)))
}

// unprocessed answers evictions of a pod as an API server does whose PodDisruptionBudgets are not processed, and passes on all else.
type unprocessed struct {
	http.RoundTripper
	pod   string
	asked *atomic.Int32
}

func (u unprocessed) RoundTrip(request *http.Request) (*http.Response, error) {
	if !strings.HasSuffix(request.URL.Path, "/pods/"+u.pod+"/eviction") {
		return u.RoundTripper.RoundTrip(request)
	}
	u.asked.Add(1)
	const wait = 10
	answer, err := json.Marshal(apierrors.NewTooManyRequests("Cannot evict pod as it would violate the pod's disruption budget.", wait).Status())
	if err != nil {
		return nil, err
	}
	return &http.Response{
		StatusCode: http.StatusTooManyRequests, Status: "429 Too Many Requests", Request: request, ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{"Retry-After": {strconv.Itoa(wait)}, "Content-Type": {"application/json"}}, Body: io.NopCloser(bytes.NewReader(answer)),
	}, nil
}

// A budget that the cluster does not process keeps one pod until the drain ends, and neither the other pods nor the Node.
func TestABudgetThatIsNotProcessedKeepsNoNode(t *testing.T) {
	w := newTestEnv(t, nil)
	node := w.inhabited(t, corev1.ConditionTrue)
	other := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.deployment.Namespace, Name: "zzz-" + node.Name, Finalizers: []string{"example.com/stays"}},
		Spec:       corev1.PodSpec{NodeName: node.Name, AutomountServiceAccountToken: new(false), Containers: []corev1.Container{{Name: "c", Image: "i"}}},
	}
	require.NoError(t, w.Create(t.Context(), other))
	config, asked := rest.CopyConfig(w.config), &atomic.Int32{}
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return unprocessed{next, "web-" + node.Name, asked} })
	cluster, err := kubernetes.NewForConfig(config)
	require.NoError(t, err)
	now := time.Now()
	d := Departure{NodeName: node.Name, TokenID: "abcdef", Since: now.Add(time.Hour), DrainUntil: now.Add(time.Minute)}
	gone, _, err := d.Depart(t.Context(), cluster, now)
	require.NoError(t, err, "the cluster answers")
	assert.False(t, gone)
	assert.Equal(t, int32(1), asked.Load(), "the next pass asks again")
	require.NoError(t, w.Get(t.Context(), client.ObjectKeyFromObject(other), other))
	assert.NotNil(t, other.DeletionTimestamp, "it was evicted")

	gone, note, err := d.Depart(t.Context(), cluster, d.DrainUntil)
	require.NoError(t, err)
	assert.True(t, gone)
	assert.Contains(t, note, "web-"+node.Name)
	assert.True(t, apierrors.IsNotFound(w.Get(t.Context(), client.ObjectKeyFromObject(node), node)))
}

// slow lets each eviction take a time.
type slow struct {
	http.RoundTripper
	time time.Duration
}

func (s slow) RoundTrip(request *http.Request) (*http.Response, error) {
	if strings.HasSuffix(request.URL.Path, "/eviction") {
		select {
		case <-time.After(s.time):
		case <-request.Context().Done():
			return nil, request.Context().Err()
		}
	}
	return s.RoundTripper.RoundTrip(request)
}

// A cluster whose webhooks look at each eviction for long answers: the next pass evicts the rest. One that answers none is away.
func TestACheckOfEachEvictionKeepsNoNode(t *testing.T) {
	w := newTestEnv(t, nil)
	node := w.inhabited(t, corev1.ConditionTrue)
	for i := range 3 {
		require.NoError(t, w.Create(t.Context(), &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: w.deployment.Namespace, Name: fmt.Sprintf("%s-%d", node.Name, i), Finalizers: []string{"example.com/stays"}},
			Spec:       corev1.PodSpec{NodeName: node.Name, AutomountServiceAccountToken: new(false), Containers: []corev1.Container{{Name: "c", Image: "i"}}},
		}))
	}
	now := time.Now()
	d := Departure{NodeName: node.Name, TokenID: "abcdef", Since: now.Add(time.Hour), DrainUntil: now.Add(time.Minute)}
	for _, c := range []struct {
		eviction, patience time.Duration
		away               bool
	}{{3 * time.Second, 10 * time.Second, false}, {time.Hour, 2 * time.Second, true}} {
		config := rest.CopyConfig(w.config)
		config.Wrap(func(next http.RoundTripper) http.RoundTripper { return slow{next, c.eviction} })
		cluster, err := kubernetes.NewForConfig(config)
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), c.patience)
		gone, _, err := d.Depart(ctx, cluster, now)
		cancel()
		assert.False(t, gone)
		assert.Equal(t, c.away, err != nil, "%s: %v", c.eviction, err)
	}
}
