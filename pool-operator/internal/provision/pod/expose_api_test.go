// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package pod_test

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/muster-io/muster/apis/controlplanetest"
	"github.com/muster-io/muster/apis/faultinject"
	"github.com/muster-io/muster/pool-operator/internal/provision"
	"github.com/muster-io/muster/pool-operator/internal/provision/pod"
)

// exposed is one cluster of a runtime with options.
type exposed struct {
	*testing.T
	client  client.Client
	runtime *pod.Runtime
	ref     provision.ClusterRef
	now     time.Time
}

func newExposed(t *testing.T, id int, options pod.Options) *exposed {
	t.Helper()
	c := newClient(t)
	k := &kubelet{T: t, client: c}
	e := &exposed{T: t, client: c, now: time.Now()}
	e.ref = provision.ClusterRef{Namespace: k.namespace(t), Name: "blue", UID: types.UID(fmt.Sprintf("22222222-%04d-4333-8444-555555555555", id))}
	options.Client, options.Images, options.Now = c, pod.OneImage("control-plane:test"), func() time.Time { return e.now }
	e.runtime = pod.New(options)
	t.Cleanup(func() { require.NoError(t, e.runtime.Delete(context.WithoutCancel(t.Context()), e.ref)) })
	return e
}

func (e *exposed) start() {
	e.Helper()
	require.NoError(e, e.runtime.Start(e.Context(), e.ref, provision.Spec{ClusterName: "blue", BaseDomain: "example.org"}))
}

func (e *exposed) renew() {
	e.Helper()
	require.NoError(e, e.runtime.Renew(e.Context(), e.ref, provision.Spec{}))
}

func (e *exposed) observe() provision.Observation {
	e.Helper()
	o, err := e.runtime.Observe(e.Context(), e.ref)
	require.NoError(e, err)
	return o
}

func (e *exposed) service() *corev1.Service {
	e.Helper()
	service := &corev1.Service{}
	require.NoError(e, e.client.Get(e.Context(), client.ObjectKey{Namespace: e.ref.Namespace, Name: e.ref.ObjectName()}, service))
	return service
}

// fits asserts that kubeconfig and serving certificate are for the address, and returns the certificate.
func (e *exposed) fits(address string) *x509.Certificate {
	e.Helper()
	require.Equal(e, address, e.observe().URL, "status.apiURL is made from it")
	access, err := e.runtime.Access(e.Context(), e.ref)
	require.NoError(e, err)
	require.Equal(e, access.ID(), e.observe().AccessID)
	config, err := clientcmd.RESTConfigFromKubeConfig(access.Kubeconfig)
	require.NoError(e, err)
	require.Equal(e, address, config.Host)
	secret := &corev1.Secret{}
	require.NoError(e, e.client.Get(e.Context(), client.ObjectKey{Namespace: e.ref.Namespace, Name: e.ref.ObjectName() + "-serving"}, secret))
	block, _ := pem.Decode(secret.Data["apiserver.crt"])
	require.NotNil(e, block)
	certificate, err := x509.ParseCertificate(block.Bytes)
	require.NoError(e, err)
	parsed, err := url.Parse(address)
	require.NoError(e, err)
	roots := x509.NewCertPool()
	require.True(e, roots.AppendCertsFromPEM(config.CAData))
	for _, host := range []string{parsed.Hostname(), e.ref.ObjectName() + "." + e.ref.Namespace + ".svc"} {
		_, err = certificate.Verify(x509.VerifyOptions{DNSName: host, Roots: roots, CurrentTime: e.now})
		require.NoError(e, err, "clients outside and the operator verify it")
	}
	return certificate
}

func TestNodePortIsReachedAtTheNodes(t *testing.T) {
	e := newExposed(t, 1, pod.Options{Expose: pod.ExposeNodePort, NodeAddress: "192.0.2.7"})
	e.start()
	service := e.service()
	require.Equal(t, corev1.ServiceTypeNodePort, service.Spec.Type)
	e.fits(fmt.Sprintf("https://192.0.2.7:%d", service.Spec.Ports[0].NodePort))
	require.NoError(t, e.runtime.Stop(t.Context(), e.ref))
	e.start()
	require.Equal(t, service.Spec.Ports[0].NodePort, e.service().Spec.Ports[0].NodePort, "the port stays the cluster's while it sleeps")

	require.False(t, e.observe().Outdated)
	require.NoError(t, e.client.Patch(t.Context(), service, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"type":"ClusterIP"}}`))))
	require.Zero(t, e.service().Spec.Ports[0].NodePort)
	require.True(t, e.observe().Outdated, "another client took the port of the nodes")
	e.renew()
	service = e.service()
	require.Equal(t, corev1.ServiceTypeNodePort, service.Spec.Type)
	e.fits(fmt.Sprintf("https://192.0.2.7:%d", service.Spec.Ports[0].NodePort))
	require.False(t, e.observe().Outdated)
}

func TestALoadBalancerGivesTheAddress(t *testing.T) {
	e := newExposed(t, 2, pod.Options{Expose: pod.ExposeLoadBalancer})
	e.start()
	service := e.service()
	require.Equal(t, corev1.ServiceTypeLoadBalancer, service.Spec.Type)
	o := e.observe()
	require.Equal(t, provision.StateStarting, o.State)
	require.NotNil(t, o.Problem)
	require.Equal(t, provision.ReasonAddressPending, o.Problem.Reason)
	require.Contains(t, o.Problem.Message, service.Name)
	require.False(t, o.Outdated, "there is nothing to make a certificate for")
	e.renew()
	_, err := e.runtime.Access(t.Context(), e.ref)
	require.ErrorContains(t, err, "has no credentials yet")

	for _, given := range []struct {
		ingress corev1.LoadBalancerIngress
		address string
	}{
		{corev1.LoadBalancerIngress{IP: "198.51.100.4"}, "https://198.51.100.4:6443"},
		{corev1.LoadBalancerIngress{Hostname: "lb.example.net"}, "https://lb.example.net:6443"},
		{corev1.LoadBalancerIngress{IP: "2001:db8::4"}, "https://[2001:db8::4]:6443"},
	} {
		service = e.service()
		service.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{given.ingress}
		require.NoError(t, e.client.Status().Update(t.Context(), service))
		require.True(t, e.observe().Outdated, "the address is new")
		before := e.observe().AccessID
		e.renew()
		require.False(t, e.observe().Outdated)
		require.NotEqual(t, before, e.observe().AccessID, "the kubeconfig is handed out again")
		e.fits(given.address)
	}
}

// A load balancer of k3s has the addresses of all nodes, in order, so that a node that joins may be the first.
func TestTheAddressStaysWhileTheLoadBalancerHasIt(t *testing.T) {
	e := newExposed(t, 13, pod.Options{Expose: pod.ExposeLoadBalancer})
	e.start()
	give := func(ips ...string) {
		t.Helper()
		service := e.service()
		service.Status.LoadBalancer.Ingress = nil
		for _, ip := range ips {
			service.Status.LoadBalancer.Ingress = append(service.Status.LoadBalancer.Ingress, corev1.LoadBalancerIngress{IP: ip})
		}
		require.NoError(t, e.client.Status().Update(t.Context(), service))
		e.renew()
	}
	give("198.51.100.4")
	first := e.observe().AccessID
	give("198.51.100.3", "198.51.100.4")
	e.fits("https://198.51.100.4:6443")
	require.Equal(t, first, e.observe().AccessID, "kubeconfigs that users have go on working")
	give("198.51.100.3", "198.51.100.5")
	e.fits("https://198.51.100.3:6443")
}

func TestCertificatesAreRenewedBeforeTheyEnd(t *testing.T) {
	e := newExposed(t, 3, pod.Options{})
	e.start()
	address := fmt.Sprintf("https://%s.%s.svc:6443", e.ref.ObjectName(), e.ref.Namespace)
	first, before := e.fits(address), e.observe()
	require.False(t, before.Outdated)
	e.renew()
	require.Equal(t, before.AccessID, e.observe().AccessID, "credentials are not renewed without a reason")

	e.now = first.NotAfter.Add(-100 * 24 * time.Hour)
	require.True(t, e.observe().Outdated)
	e.renew()
	require.False(t, e.observe().Outdated)
	require.NotEqual(t, before.AccessID, e.observe().AccessID)
	second := e.fits(address)
	require.True(t, second.NotAfter.After(first.NotAfter))
	access, err := e.runtime.Access(t.Context(), e.ref)
	require.NoError(t, err)
	require.NotEmpty(t, access.Password)
	require.Equal(t, before.ID, e.observe().ID, "it is the same cluster")
}

// A clock that is ahead for a while has certificates of clusters that are there renewed, and these are not valid when it is right again.
func TestCertificatesOfAClockThatWasAheadAreRenewed(t *testing.T) {
	e := newExposed(t, 12, pod.Options{})
	e.start()
	address := fmt.Sprintf("https://%s.%s.svc:6443", e.ref.ObjectName(), e.ref.Namespace)
	e.fits(address)
	right := e.now
	e.now = right.Add(3 * 365 * 24 * time.Hour)
	require.True(t, e.observe().Outdated)
	e.renew()
	e.now = right
	require.True(t, e.observe().Outdated)
	e.renew()
	e.fits(address)
	require.False(t, e.observe().Outdated)
}

// A Gateway routes by the name of the server, which is in the clear in each TLS connection, and decrypts nothing.
func TestAGatewayRoutesByName(t *testing.T) {
	c := newClient(t)
	e := newExposed(t, 4, pod.Options{
		Expose: pod.ExposeGateway, Gateway: types.NamespacedName{Namespace: "infra", Name: "public"}, Address: "https://{clusterName}.{baseDomain}:443",
	})
	err := e.runtime.Start(t.Context(), e.ref, provision.Spec{ClusterName: "blue", BaseDomain: "example.org"})
	require.ErrorContains(t, err, "this cluster has no kind TLSRoute: install the CustomResourceDefinitions of Gateway API")
	installTLSRoute(t)
	e.start()
	require.Equal(t, corev1.ServiceTypeClusterIP, e.service().Spec.Type)
	e.fits("https://blue.example.org:443")
	route := &unstructured.Unstructured{}
	route.SetAPIVersion("gateway.networking.k8s.io/v1alpha3")
	route.SetKind("TLSRoute")
	key := client.ObjectKey{Namespace: e.ref.Namespace, Name: e.ref.ObjectName()}
	require.NoError(t, c.Get(t.Context(), key, route))
	assert.Equal(t, map[string]any{
		"parentRefs": []any{map[string]any{"group": "gateway.networking.k8s.io", "kind": "Gateway", "namespace": "infra", "name": "public"}},
		"hostnames":  []any{"blue.example.org"},
		"rules": []any{map[string]any{"backendRefs": []any{
			map[string]any{"group": "", "kind": "Service", "name": e.ref.ObjectName(), "port": int64(6443), "weight": int64(1)},
		}}},
	}, route.Object["spec"])
	service := e.service()
	require.Equal(t, []metav1.OwnerReference{{APIVersion: "v1", Kind: "Service", Name: service.Name, UID: service.UID}}, route.GetOwnerReferences(),
		"a route does not outlive its Service")

	require.False(t, e.observe().Outdated)
	require.NoError(t, c.Patch(t.Context(), route, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"hostnames":["red.example.org"]}}`))))
	require.True(t, e.observe().Outdated, "another client leads the name of another cluster to it")
	e.renew()
	hosts, _, err := unstructured.NestedStringSlice(e.route().Object, "spec", "hostnames")
	require.NoError(t, err)
	require.Equal(t, []string{"blue.example.org"}, hosts)
	for _, patch := range []string{
		`{"spec":{"parentRefs":[{"namespace":"infra","name":"other"}]}}`, `{"spec":{"parentRefs":[{"namespace":"infra","name":"public","sectionName":"other"}]}}`, `{"spec":{"parentRefs":null}}`,
		`{"spec":{"rules":[{"backendRefs":[{"name":"other","port":6443}]}]}}`, `{"spec":{"rules":[{"backendRefs":[{"name":"` + e.ref.ObjectName() + `","port":6443,"weight":0}]}]}}`,
	} {
		made := e.route().Object["spec"]
		require.NoError(t, c.Patch(t.Context(), e.route(), client.RawPatch(types.MergePatchType, []byte(patch))))
		require.True(t, e.observe().Outdated, patch)
		e.renew()
		require.False(t, e.observe().Outdated, patch)
		require.Equal(t, made, e.route().Object["spec"], patch)
	}
	require.NoError(t, c.Delete(t.Context(), route))
	require.True(t, e.observe().Outdated, "another client deleted the route")
	e.renew()
	require.NotNil(t, e.route())
	require.False(t, e.observe().Outdated)
	require.NoError(t, e.runtime.Delete(t.Context(), e.ref))
	require.True(t, apierrors.IsNotFound(c.Get(t.Context(), key, route)), "it goes with the cluster")
}

// Gateway API 1.5 serves TLSRoutes in v1 and no more in the versions before, while the operator runs.
func TestRoutesFollowAnUpgradeOfGatewayAPI(t *testing.T) {
	installTLSRoute(t)
	e := newExposed(t, 11, pod.Options{
		Expose: pod.ExposeGateway, Gateway: types.NamespacedName{Namespace: "infra", Name: "public"}, Address: "https://{clusterName}.{baseDomain}:443",
		Reopen: func() (client.Client, error) { return newClient(t), nil },
	})
	e.start()
	require.NotNil(t, e.route())
	upgrade := []byte(`[{"op":"copy","from":"/spec/versions/0","path":"/spec/versions/1"},{"op":"replace","path":"/spec/versions/1/name","value":"v1"},` +
		`{"op":"replace","path":"/spec/versions/0/served","value":false},{"op":"replace","path":"/spec/versions/0/storage","value":false}]`)
	crd := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: "tlsroutes.gateway.networking.k8s.io"}}
	crd.SetGroupVersionKind(apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinition"))
	require.NoError(t, e.client.Patch(t.Context(), crd, client.RawPatch(types.JSONPatchType, upgrade)))
	route := &unstructured.Unstructured{}
	route.SetAPIVersion("gateway.networking.k8s.io/v1")
	route.SetKind("TLSRoute")
	key := client.ObjectKey{Namespace: e.ref.Namespace, Name: e.ref.ObjectName()}
	read := func() error { return newClient(t).Get(t.Context(), key, route) }
	require.Eventually(t, func() bool { return read() == nil }, patience, 50*time.Millisecond)
	require.Eventually(t, func() bool { // one replica of the API server after the other serves it
		o, err := e.runtime.Observe(t.Context(), e.ref)
		return err == nil && !o.Outdated
	}, patience, 50*time.Millisecond)

	require.NoError(t, newClient(t).Delete(t.Context(), route))
	require.True(t, e.observe().Outdated)
	e.renew()
	require.False(t, e.observe().Outdated)
	require.NoError(t, read())
	require.NoError(t, e.runtime.Delete(t.Context(), e.ref))
	require.True(t, apierrors.IsNotFound(read()), "it goes with the cluster")
}

// route returns the TLSRoute of the cluster, nil when there is none.
func (e *exposed) route() *unstructured.Unstructured {
	e.Helper()
	route := &unstructured.Unstructured{}
	route.SetAPIVersion("gateway.networking.k8s.io/v1alpha3")
	route.SetKind("TLSRoute")
	err := e.client.Get(e.Context(), client.ObjectKey{Namespace: e.ref.Namespace, Name: e.ref.ObjectName()}, route)
	if apierrors.IsNotFound(err) {
		return nil
	}
	require.NoError(e, err)
	return route
}

// reopen is an operator that is started with other options, and fails at its n-th write; zero is never.
func (e *exposed) reopen(options pod.Options, n int) *faultinject.Injector {
	e.Helper()
	injector := faultinject.New(n, faultinject.CrashBefore)
	config := rest.CopyConfig(controlplanetest.Start(e.T))
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return injector.Transport(next, faultinject.IsWrite) })
	c, err := client.New(config, client.Options{Scheme: clientgoscheme.Scheme})
	require.NoError(e, err)
	options.Client, options.Images, options.Now = c, pod.OneImage("control-plane:test"), func() time.Time { return e.now }
	e.runtime = pod.New(options)
	return injector
}

// A change of the exposure reaches a cluster that runs, whenever the operator dies, and leaves no route of the former one.
func TestAChangedExposureReachesAClusterThatRuns(t *testing.T) {
	installTLSRoute(t)
	gateway := func(name string) pod.Options {
		return pod.Options{Expose: pod.ExposeGateway, Gateway: types.NamespacedName{Namespace: "infra", Name: name}, Address: "https://{clusterName}.{baseDomain}:443"}
	}
	// The address of ClusterIP is that of the Gateway, so that nothing but the route tells them apart.
	stages := []struct {
		options pod.Options
		gateway string
		kind    corev1.ServiceType
	}{
		{pod.Options{Expose: pod.ExposeNodePort, NodeAddress: "192.0.2.7"}, "", corev1.ServiceTypeNodePort},
		{gateway("public"), "public", corev1.ServiceTypeClusterIP},
		{gateway("other"), "other", corev1.ServiceTypeClusterIP},
		{pod.Options{Expose: pod.ExposeClusterIP, Address: "https://{clusterName}.{baseDomain}:443"}, "", corev1.ServiceTypeClusterIP},
		{gateway("public"), "public", corev1.ServiceTypeClusterIP},
		{pod.Options{Expose: pod.ExposeLoadBalancer, Address: "https://{clusterName}.{baseDomain}:443"}, "", corev1.ServiceTypeLoadBalancer},
	}
	for n := range 5 {
		t.Run(fmt.Sprintf("dies at write %d", n), func(t *testing.T) {
			e := newExposed(t, 50+n, gateway("first"))
			e.start()
			require.NotNil(t, e.route())
			for i, stage := range stages {
				injector := e.reopen(stage.options, n)
				require.True(t, e.observe().Outdated, "stage %d is noticed", i)
				err := e.runtime.Renew(t.Context(), e.ref, provision.Spec{})
				if injector.Crashed() {
					require.Error(t, err)
					e.reopen(stage.options, 0)
					require.True(t, e.observe().Outdated, "stage %d goes on after write %d", i, n)
					e.renew()
				}
				require.False(t, e.observe().Outdated, "stage %d is done", i)
				require.Equal(t, stage.kind, e.service().Spec.Type, "stage %d", i)
				route := e.route()
				if stage.gateway == "" {
					require.Nil(t, route, "stage %d", i)
					continue
				}
				require.NotNil(t, route, "stage %d", i)
				parents, _, err := unstructured.NestedSlice(route.Object, "spec", "parentRefs")
				require.NoError(t, err)
				require.Len(t, parents, 1)
				require.Equal(t, stage.gateway, parents[0].(map[string]any)["name"], "stage %d", i)
			}
			e.reopen(gateway("public"), 0)
			e.start()
			e.reopen(pod.Options{}, 0)
			require.NoError(t, e.runtime.Stop(t.Context(), e.ref))
			e.start()
			require.Nil(t, e.route(), "a start with another exposure takes the route away, too")
			require.False(t, e.observe().Outdated)
		})
	}
}

// installTLSRoute installs the kind as Gateway API does, until the test ends.
func installTLSRoute(t *testing.T) {
	t.Helper()
	scheme := runtime.NewScheme()
	require.NoError(t, clientgoscheme.AddToScheme(scheme))
	require.NoError(t, apiextensionsv1.AddToScheme(scheme))
	c, err := client.New(controlplanetest.Start(t), client.Options{Scheme: scheme})
	require.NoError(t, err)
	data, err := os.ReadFile("testdata/tlsroutes.yaml")
	require.NoError(t, err)
	crd := &apiextensionsv1.CustomResourceDefinition{}
	require.NoError(t, yaml.UnmarshalStrict(data, crd))
	require.NoError(t, c.Create(t.Context(), crd))
	t.Cleanup(func() {
		require.NoError(t, c.Delete(context.WithoutCancel(t.Context()), crd))
		require.Eventually(t, func() bool {
			_, err := newClient(t).RESTMapper().RESTMapping(schema.GroupKind{Group: "gateway.networking.k8s.io", Kind: "TLSRoute"})
			return meta.IsNoMatchError(err)
		}, patience, 50*time.Millisecond)
	})
	require.Eventually(t, func() bool {
		if c.Get(t.Context(), client.ObjectKeyFromObject(crd), crd) != nil {
			return false
		}
		for _, condition := range crd.Status.Conditions {
			if condition.Type == apiextensionsv1.Established && condition.Status == apiextensionsv1.ConditionTrue {
				return true
			}
		}
		return false
	}, patience, 50*time.Millisecond)
}
