// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"slices"
	"strings"
	"sync"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/muster-io/muster/agent-service/internal/join"
)

// Bounds of what a cluster that takes nodes can make the service keep in memory. Others administer it, and may have its API answer what they like.
const (
	// maxAnswer is the most bytes of one answer. An object of a real API server has at most 1.5 MiB.
	maxAnswer = 16 << 20
	// maxValues is the most objects and fields of one answer: empty ones take hundreds of times their bytes when they are decoded.
	maxValues = 1 << 18
	// pageSize is how many objects a list asks for at a time.
	pageSize = 100
	// maxObjects is the most Nodes, and the most certificate requests of nodes, that are kept of one cluster.
	maxObjects = 20_000
	// maxName is the most bytes of the name of an object, maxLabel of a label with its key, and maxLabels the most labels of a Node that are looked at.
	maxName, maxLabel, maxLabels = 253, 253 + 1 + 63 + 63, 512
)

// ErrTooMuch says that a cluster answers more than the service takes in.
var ErrTooMuch = errors.New("more than agent-service takes in")

// largeError says that one answer is too large.
type largeError struct{ path string }

func (e largeError) Error() string {
	return fmt.Sprintf("the answer of the cluster to %s has more than %d MiB or %d fields, which is %v", e.path, maxAnswer>>20, maxValues, ErrTooMuch)
}

func (largeError) Unwrap() error { return ErrTooMuch }

// bounded refuses answers that are too large, each event of a watch by itself, which client-go reads as a whole before it bounds it. A watch goes on for as long as it likes. Answers are JSON,
// in which fields are counted: in other encodings, which client-go would read, too, millions of empty objects fit.
type bounded struct{ http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (b bounded) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := b.RoundTripper.RoundTrip(request)
	if err != nil {
		return response, err
	}
	kind, _, _ := mime.ParseMediaType(response.Header.Get("Content-Type"))
	if kind != "" && kind != runtime.ContentTypeJSON && !strings.HasPrefix(kind, "text/") {
		return nil, errors.Join(fmt.Errorf("the cluster answers %s with a content type that is not %s", request.URL.Path, runtime.ContentTypeJSON), response.Body.Close())
	}
	body := &boundedBody{ReadCloser: response.Body, path: request.URL.Path}
	response.Body = body
	if response.StatusCode == http.StatusOK && request.URL.Query().Get("watch") == "true" {
		response.Body = &boundedEvents{boundedBody: body}
	}
	return response, nil
}

type boundedBody struct {
	io.ReadCloser
	path          string
	bytes, values int
}

func (b *boundedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.bytes += n
	b.values += bytes.Count(p[:n], []byte{','}) + bytes.Count(p[:n], []byte{'{'})
	if b.tooLarge() {
		return 0, largeError{b.path}
	}
	return n, err
}

func (b *boundedBody) tooLarge() bool { return b.bytes > maxAnswer || b.values > maxValues }

// boundedEvents is the body of a watch: JSON objects, one after the other.
type boundedEvents struct {
	*boundedBody
	depth           int
	quoted, escaped bool
}

func (b *boundedEvents) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	for _, c := range p[:n] {
		if b.bytes++; b.count(c) {
			b.bytes, b.values = 0, 0
		}
		if b.tooLarge() {
			return 0, largeError{b.path}
		}
	}
	return n, err
}

// count counts one byte of an event; it is true for the last one.
func (b *boundedEvents) count(c byte) bool {
	switch {
	case b.escaped:
		b.escaped = false
	case b.quoted:
		b.quoted, b.escaped = c != '"', c == '\\'
	case c == '"':
		b.quoted = true
	case c == ',':
		b.values++
	case c == '{':
		b.values++
		b.depth++
	case c == '}':
		b.depth--
		return b.depth == 0
	}
	return false
}

// eachPage lists a page at a time, so that one page is in memory. Pages become smaller where one is too large. List says where the next page begins.
func eachPage(ctx context.Context, options metav1.ListOptions, list func(context.Context, metav1.ListOptions) (next string, err error)) error {
	options.Limit = pageSize
	for {
		next, err := list(ctx, options)
		switch {
		case errors.As(err, &largeError{}) && options.Limit > 1:
			options.Limit = max(1, options.Limit/10)
		case err != nil || next == "":
			return err
		default:
			options.Continue = next
		}
	}
}

// trimmed lists and watches objects of a cluster, and keeps of them what trim does; nil leaves an object out.
type trimmed struct {
	// noun is what an error calls them, in the plural.
	noun  string
	list  func(context.Context, metav1.ListOptions) (runtime.Object, error)
	watch func(context.Context, metav1.ListOptions) (watch.Interface, error)
	trim  func(runtime.Object) metav1.Object

	mu sync.Mutex
	// names are the objects that are kept.
	names map[string]struct{}
}

// informer returns an informer of such objects, which tells failed why it cannot read them.
func (t *trimmed) informer(example runtime.Object, failed func(error)) (cache.SharedIndexInformer, error) {
	informer := cache.NewSharedIndexInformer(&cache.ListWatch{ListWithContextFunc: t.listAll, WatchFuncWithContext: t.watchAll}, example, resync, cache.Indexers{})
	err := informer.SetWatchErrorHandlerWithContext(func(ctx context.Context, r *cache.Reflector, err error) {
		failed(err)
		cache.DefaultWatchErrorHandler(ctx, r, err)
	})
	return informer, err
}

// keep trims an object, and counts it.
func (t *trimmed) keep(object runtime.Object) (metav1.Object, error) {
	kept := t.trim(object)
	if kept == nil || len(kept.GetName()) > maxName {
		return nil, nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, known := t.names[kept.GetName()]; !known && len(t.names) == maxObjects {
		return nil, fmt.Errorf("the cluster has more than %d %s, which is %w", maxObjects, t.noun, ErrTooMuch)
	}
	t.names[kept.GetName()] = struct{}{}
	return kept, nil
}

func (t *trimmed) begin() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.names = map[string]struct{}{}
}

// listAll ignores which version is asked for: an API server answers a list of version 0 from its memory, as a whole.
func (t *trimmed) listAll(ctx context.Context, _ metav1.ListOptions) (runtime.Object, error) {
	t.begin()
	all := &metav1.List{}
	err := eachPage(ctx, metav1.ListOptions{}, func(ctx context.Context, options metav1.ListOptions) (string, error) {
		page, err := t.list(ctx, options)
		if err != nil {
			return "", err
		}
		list, err := meta.ListAccessor(page)
		if err != nil {
			return "", fmt.Errorf("reading a list: %w", err)
		}
		all.ResourceVersion = list.GetResourceVersion()
		err = meta.EachListItem(page, func(object runtime.Object) error {
			kept, err := t.keep(object)
			if one, ok := kept.(runtime.Object); ok {
				all.Items = append(all.Items, runtime.RawExtension{Object: one})
			}
			return err
		})
		return list.GetContinue(), err
	})
	return all, err
}

func (t *trimmed) watchAll(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	if options.SendInitialEvents != nil && *options.SendInitialEvents {
		t.begin()
	}
	whole, err := t.watch(ctx, options)
	if err != nil {
		return nil, err
	}
	over := false
	return watch.Filter(whole, func(in watch.Event) (watch.Event, bool) {
		switch in.Type {
		case watch.Added, watch.Modified:
			kept, err := t.keep(in.Object)
			if err != nil && !over {
				over = true
				return watch.Event{Type: watch.Error, Object: &metav1.Status{
					Status: metav1.StatusFailure, Code: http.StatusRequestEntityTooLarge, Reason: metav1.StatusReasonRequestEntityTooLarge, Message: err.Error(),
				}}, true
			}
			one, ok := kept.(runtime.Object)
			in.Object = one
			return in, ok && !over
		case watch.Deleted:
			kept := t.trim(in.Object)
			one, ok := kept.(runtime.Object)
			if ok {
				t.mu.Lock()
				delete(t.names, kept.GetName())
				t.mu.Unlock()
			}
			in.Object = one
			return in, ok && !over
		case watch.Bookmark, watch.Error:
		}
		return in, !over
	}), nil
}

// nodesOf reads of Nodes whether they are Ready, and the labels that only the service gives them.
func nodesOf(cluster kubernetes.Interface) *trimmed {
	nodes := cluster.CoreV1().Nodes()
	return &trimmed{
		noun: "Nodes",
		list: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			return nodes.List(ctx, options)
		},
		watch: nodes.Watch,
		trim: func(object runtime.Object) metav1.Object {
			whole, ok := object.(*corev1.Node)
			if !ok {
				return nil
			}
			node := &corev1.Node{ObjectMeta: identity(whole)}
			for key, value := range whole.Labels {
				if join.Restricted(key) && len(key)+len(value) <= maxLabel && len(node.Labels) < maxLabels {
					metav1.SetMetaDataLabel(&node.ObjectMeta, key, value)
				}
			}
			for i := range whole.Status.Conditions {
				if c := &whole.Status.Conditions[i]; c.Type == corev1.NodeReady {
					node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: word(c.Status)}}
					break
				}
			}
			return node
		},
	}
}

// requestsOf reads of certificate requests who asks for what, and whether they are decided. Requests of others than nodes are left out.
func requestsOf(cluster kubernetes.Interface) *trimmed {
	requests := cluster.CertificatesV1().CertificateSigningRequests()
	return &trimmed{
		noun: "certificate requests of nodes",
		list: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			return requests.List(ctx, options)
		},
		watch: requests.Watch,
		trim: func(object runtime.Object) metav1.Object {
			whole, ok := object.(*certificatesv1.CertificateSigningRequest)
			if !ok || !ofNode(whole) {
				return nil
			}
			request := &certificatesv1.CertificateSigningRequest{ObjectMeta: identity(whole)}
			request.Spec.SignerName, request.Spec.Username = whole.Spec.SignerName, whole.Spec.Username
			for _, kind := range []certificatesv1.RequestConditionType{certificatesv1.CertificateApproved, certificatesv1.CertificateDenied} {
				if slices.ContainsFunc(whole.Status.Conditions, func(c certificatesv1.CertificateSigningRequestCondition) bool { return c.Type == kind }) {
					request.Status.Conditions = append(request.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{Type: kind})
				}
			}
			if len(whole.Status.Certificate) > 0 {
				request.Status.Certificate = []byte{0}
			}
			return request
		},
	}
}

// ofNode says that a certificate request is one that a machine may have made.
func ofNode(request *certificatesv1.CertificateSigningRequest) bool {
	signer, user := request.Spec.SignerName, request.Spec.Username
	return (signer == certificatesv1.KubeAPIServerClientKubeletSignerName || signer == certificatesv1.KubeletServingSignerName) &&
		(strings.HasPrefix(user, bootstrapUser) || strings.HasPrefix(user, nodeUser)) && len(user) <= len(bootstrapUser)+maxName
}

// identity is what tells an object from others.
func identity(object metav1.Object) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: object.GetName(), UID: word(object.GetUID()), ResourceVersion: word(object.GetResourceVersion())}
}

// word is a text that is short in each answer of a real API server; empty where it is not.
func word[T ~string](text T) T {
	if len(text) > maxName {
		return ""
	}
	return text
}
