// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr/testr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/muster-io/muster/agent-service/internal/domain"
)

// tenant is the node access of a cluster whose API its administrator replaced.
func tenant(t *testing.T, api http.HandlerFunc) *Access {
	t.Helper()
	server := httptest.NewTLSServer(api)
	t.Cleanup(server.Close)
	return &Access{kubeconfig: fmt.Appendf(nil, `{"apiVersion":"v1","kind":"Config","current-context":"c","contexts":[{"name":"c","context":{"cluster":"c","user":"u"}}],
		"users":[{"name":"u","user":{"token":"t"}}],"clusters":[{"name":"c","cluster":{"insecure-skip-tls-verify":true,"server":%q}}]}`, server.URL)}
}

func reply(w http.ResponseWriter, value any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(value)
}

// repeated writes a list of many items, and stops when the client has gone.
func repeated(w io.Writer, kind, item string, number int) {
	_, err := fmt.Fprintf(w, `{"kind":%q,"apiVersion":"v1","metadata":{"resourceVersion":"1"},"items":[%s`, kind, item)
	for i := 1; i < number && err == nil; i++ {
		_, err = io.WriteString(w, ","+item)
	}
	if err == nil {
		_, _ = io.WriteString(w, "]}")
	}
}

// The administrator of a cluster has its API answer what fills memory.
func TestAnAnswerThatIsTooLargeIsRefused(t *testing.T) {
	large := `{"metadata":{"name":"p","namespace":"n","annotations":{"a":"` + strings.Repeat("x", 1<<20) + `"}}}`
	for name, c := range map[string]struct {
		item   string
		number int
	}{
		"large objects": {large, 64},
		"empty objects": {"{}", 1 << 20},
	} {
		t.Run(name, func(t *testing.T) {
			access := tenant(t, func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path != "/api/v1/pods" {
					reply(w, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Spec: corev1.NodeSpec{Unschedulable: true}})
					return
				}
				w.Header().Set("Content-Type", "application/json")
				repeated(w, "PodList", c.item, c.number)
			})
			cluster, err := access.Client()
			require.NoError(t, err)
			_, _, err = Departure{NodeName: "a", TokenID: "abcdef", Since: time.Now(), DrainUntil: time.Now().Add(time.Minute)}.Depart(t.Context(), cluster, time.Now())
			require.ErrorIs(t, err, ErrTooMuch)
			require.ErrorContains(t, err, "the answer of the cluster to /api/v1/pods has more than 16 MiB or 262144 fields")
		})
	}
}

// Fields of JSON are counted. In two bytes of protobuf is an empty object, which takes more than a thousand in memory.
func TestAnAnswerInAnotherEncodingIsRefused(t *testing.T) {
	access := tenant(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", runtime.ContentTypeProtobuf)
		whole := runtime.Unknown{TypeMeta: runtime.TypeMeta{APIVersion: "v1", Kind: "NodeList"}, Raw: bytes.Repeat([]byte{2<<3 | 2, 0}, 1<<19)}
		content, err := whole.Marshal()
		assert.NoError(t, err)
		_, _ = w.Write(append([]byte("k8s\x00"), content...))
	})
	cluster, err := access.Client()
	require.NoError(t, err)
	_, err = cluster.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	require.ErrorContains(t, err, "the cluster answers /api/v1/nodes with a content type that is not application/json")
}

// An event of a watch is bounded as an answer is, and many of them are not.
func TestAnEventThatIsTooLargeIsRefused(t *testing.T) {
	event := func(node string) string { return `{"type":"ADDED","object":` + node + "}\n" }
	padded := event(`{"kind":"Node","apiVersion":"v1","metadata":{"name":"a","annotations":{"a":"{\"}` + strings.Repeat("x", 1<<20) + `"}}}`)
	const many = 64 << 20
	for name, c := range map[string]struct {
		contentType, begin, item string
		refused                  bool
	}{
		"a long text":            {begin: `{"type":"ADDED","object":{"kind":"Node","apiVersion":"v1","metadata":{"name":"`, item: strings.Repeat("}", 1<<20), refused: true},
		"many fields":            {begin: `{"type":"ADDED","object":{"kind":"Node","apiVersion":"v1","status":{"conditions":[{}`, item: strings.Repeat(",{}", 1<<10), refused: true},
		"no end of the object":   {begin: `{"type":"ADDED","object":{"kind":"Node"`, item: strings.Repeat("\n", 1<<20), refused: true},
		"no begin of an object":  {item: strings.Repeat(" ", 1<<20), refused: true},
		"another encoding":       {contentType: "application/vnd.kubernetes.protobuf;stream=watch", item: strings.Repeat("\x00", 1<<20), refused: true},
		"many events of a watch": {item: padded},
	} {
		t.Run(name, func(t *testing.T) {
			var sent atomic.Int64
			access := tenant(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", cmp.Or(c.contentType, "application/json"))
				_, err := io.WriteString(w, c.begin)
				for err == nil && sent.Load() < many {
					n := 0
					n, err = io.WriteString(w, c.item)
					sent.Add(int64(n))
				}
			})
			cluster, err := access.Client()
			require.NoError(t, err)
			events, err := cluster.CoreV1().Nodes().Watch(t.Context(), metav1.ListOptions{})
			if err != nil {
				assert.True(t, c.refused, "%v", err)
				return
			}
			number := 0
			for e := range events.ResultChan() {
				if number++; !c.refused {
					require.Equal(t, watch.Added, e.Type, "%v", e.Object)
				} else if e.Type == watch.Error {
					break
				}
			}
			if !c.refused {
				assert.Equal(t, many/len(padded)+1, number)
				return
			}
			events.Stop()
			assert.Less(t, sent.Load(), int64(many), "it was read to its end")
		})
	}
}

// A Node with many pods, some of which are large, is drained with a page of them in memory at a time. A pass has requestTimeout, also on a slow machine with the race detector: the pods are large
// by their fields, which are fewer bytes than the bound of an answer, and are encoded once.
func TestADrainReadsPagesOfPods(t *testing.T) {
	const number, large = 25, 17
	pods := make([]string, number)
	for i := range pods {
		fields := `"f"`
		if i < large {
			fields += strings.Repeat(`,"f"`, maxValues/large)
		}
		pods[i] = fmt.Sprintf(`{"metadata":{"namespace":"n","name":"p-%d","finalizers":[%s]}}`, i, fields)
	}
	var evicted atomic.Int32
	var mu sync.Mutex
	var pages []string
	access := tenant(t, func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.HasSuffix(r.URL.Path, "/eviction"):
			evicted.Add(1)
			reply(w, &metav1.Status{Status: metav1.StatusSuccess})
		case r.URL.Path == "/api/v1/pods":
			limit, _ := strconv.Atoi(r.URL.Query().Get("limit"))
			from, _ := strconv.Atoi(r.URL.Query().Get("continue"))
			mu.Lock()
			pages = append(pages, fmt.Sprintf("%d from %d", limit, from))
			mu.Unlock()
			to, next := number, ""
			if limit > 0 && from+limit < number {
				to, next = from+limit, strconv.Itoa(from+limit)
			}
			w.Header().Set("Content-Type", "application/json")
			_, err := fmt.Fprintf(w, `{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"1","continue":%q},"items":[`, next)
			for i := from; i < to && err == nil; i++ {
				if i > from {
					_, _ = io.WriteString(w, ",")
				}
				_, err = io.WriteString(w, pods[i])
			}
			_, _ = io.WriteString(w, "]}")
		default:
			reply(w, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Spec: corev1.NodeSpec{Unschedulable: true}, Status: corev1.NodeStatus{
				Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
			}})
		}
	})
	cluster, err := access.Client()
	require.NoError(t, err)
	until := time.Now().Add(time.Hour)
	d := Departure{NodeName: "a", TokenID: "abcdef", Since: time.Now(), DrainUntil: until}
	gone, _, err := d.Depart(t.Context(), cluster, time.Now())
	require.NoError(t, err)
	assert.False(t, gone, "its pods are leaving")
	assert.Equal(t, int32(number), evicted.Load(), "each once")
	assert.Equal(t, []string{"100 from 0", "10 from 0", "10 from 10", "10 from 20"}, pages, "a page that is too large becomes smaller")
	_, note, err := d.Depart(t.Context(), cluster, until)
	require.NoError(t, err)
	assert.Equal(t, "Node a was deleted although 25 pods had not left it in time: n/p-0, n/p-1, n/p-2, n/p-3, n/p-4 and 20 more", note)
}

// What the administrator of a cluster puts on its objects is not kept.
func TestAWatcherKeepsWhatItReads(t *testing.T) {
	text := strings.Repeat("x", 1<<20)
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "a", UID: "u", ResourceVersion: "1", Annotations: map[string]string{"a": text}, Labels: map[string]string{"rack": "a", ControlPlaneLabel: "", "x.kubernetes.io/a": text}},
		Status: corev1.NodeStatus{
			Images:     []corev1.ContainerImage{{Names: []string{text}}},
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeDiskPressure, Status: corev1.ConditionFalse}, {Type: corev1.NodeReady, Status: corev1.ConditionTrue, Message: text}},
		},
	}
	request := certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{Name: "r", UID: "u", ResourceVersion: "1", Annotations: map[string]string{"a": text}},
		Spec:       certificatesv1.CertificateSigningRequestSpec{SignerName: certificatesv1.KubeletServingSignerName, Username: nodeUser + "a", Request: []byte(text), Extra: map[string]certificatesv1.ExtraValue{"a": {text}}},
		Status: certificatesv1.CertificateSigningRequestStatus{
			Certificate: []byte(text), Conditions: []certificatesv1.CertificateSigningRequestCondition{{Type: certificatesv1.CertificateApproved, Message: text}},
		},
	}
	foreign := request
	foreign.Name, foreign.Spec.SignerName = "foreign", "example.com/mesh"
	access := tenant(t, func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Query().Get("sendInitialEvents") != "":
			w.WriteHeader(http.StatusUnprocessableEntity) // as an older API server
		case r.URL.Query().Get("watch") != "":
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		case strings.HasSuffix(r.URL.Path, "/nodes"):
			reply(w, &corev1.NodeList{ListMeta: metav1.ListMeta{ResourceVersion: "1"}, Items: []corev1.Node{*node}})
		default:
			reply(w, &certificatesv1.CertificateSigningRequestList{ListMeta: metav1.ListMeta{ResourceVersion: "1"}, Items: []certificatesv1.CertificateSigningRequest{request, foreign}})
		}
	})
	w, err := Watch(t.Context(), access, testr.New(t), func() {}, func(context.Context, Machine, domain.Certificate) {})
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		requests, err := w.requests.List(labels.Everything())
		return err == nil && len(requests) > 0 && w.taken("a")
	}, patience, 10*time.Millisecond)
	kept, err := w.nodes.Get("a")
	require.NoError(t, err)
	assert.Equal(t, map[string]string{ControlPlaneLabel: ""}, kept.Labels)
	requests, err := w.requests.List(labels.Everything())
	require.NoError(t, err)
	require.Len(t, requests, 1)
	assert.True(t, decided(requests[0]))
	for _, object := range []any{kept, requests[0]} {
		size, err := json.Marshal(object)
		require.NoError(t, err)
		assert.Less(t, len(size), 1<<10)
	}
}

// A cluster with more Nodes than a cluster can have is not watched, and says so.
func TestAClusterWithTooManyNodesIsNotWatched(t *testing.T) {
	for name, streams := range map[string]bool{"in a list": false, "in a stream": true} {
		t.Run(name, func(t *testing.T) {
			var number atomic.Int32
			access := tenant(t, func(w http.ResponseWriter, r *http.Request) {
				stream := r.URL.Query().Get("sendInitialEvents") != ""
				w.Header().Set("Content-Type", "application/json")
				switch {
				case stream && !streams:
					w.WriteHeader(http.StatusUnprocessableEntity)
				case stream && strings.HasSuffix(r.URL.Path, "/nodes"):
					for i := 0; ; i++ { // it never ends
						if _, err := fmt.Fprintf(w, `{"type":"ADDED","object":{"kind":"Node","apiVersion":"v1","metadata":{"name":"n-%d","resourceVersion":"1"}}}`+"\n", i); err != nil {
							return
						}
					}
				case r.URL.Query().Get("watch") != "":
					w.(http.Flusher).Flush()
					<-r.Context().Done()
				case strings.HasSuffix(r.URL.Path, "/nodes"):
					list := &corev1.NodeList{ListMeta: metav1.ListMeta{ResourceVersion: "1", Continue: "more"}}
					for range pageSize {
						list.Items = append(list.Items, corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("n-%d", number.Add(1))}})
					}
					if number.Load() > 10*maxObjects { // the test ends also where nothing else ends it
						list.Continue = ""
					}
					reply(w, list)
				default:
					reply(w, &certificatesv1.CertificateSigningRequestList{ListMeta: metav1.ListMeta{ResourceVersion: "1"}})
				}
			})
			w, err := Watch(t.Context(), access, testr.New(t), func() {}, func(context.Context, Machine, domain.Certificate) {})
			require.NoError(t, err)
			require.EventuallyWithT(t, func(collect *assert.CollectT) {
				require.ErrorContains(collect, w.TooMuch(), "the cluster has more than 20000 Nodes, which is more than agent-service takes in")
			}, patience, 50*time.Millisecond)
			_, known := w.Ready("n-1")
			assert.False(t, known)
		})
	}
}
