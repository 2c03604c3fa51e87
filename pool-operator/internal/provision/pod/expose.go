// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-io/muster/apis/outcome"
	"github.com/muster-io/muster/pool-operator/internal/provision"
)

// Exposure is how clients outside the cluster reach the API servers of hosted clusters.
type Exposure string

// The exposures.
const (
	// ExposeClusterIP makes them reachable in the cluster, or at Options.Address, which the user routes to the Service.
	ExposeClusterIP Exposure = "ClusterIP"
	// ExposeNodePort makes each reachable at a port of its own of every node. Options.NodeAddress says where the nodes are.
	ExposeNodePort Exposure = "NodePort"
	// ExposeLoadBalancer gives each a load balancer, at the address that it gets or at Options.Address.
	ExposeLoadBalancer Exposure = "LoadBalancer"
	// ExposeGateway routes TLS connections by the host of Options.Address through Options.Gateway, undecrypted.
	ExposeGateway Exposure = "Gateway"
)

// tlsRoute is the kind of a route of TLS connections by the name of their server.
var tlsRoute = schema.GroupKind{Group: "gateway.networking.k8s.io", Kind: "TLSRoute"}

// errNoAddress says that a cluster has no address yet.
var errNoAddress = errors.New("the Service has no address yet")

// serviceType is the type of the Service in front of a cluster.
func (e Exposure) serviceType() corev1.ServiceType {
	switch e {
	case ExposeNodePort:
		return corev1.ServiceTypeNodePort
	case ExposeLoadBalancer:
		return corev1.ServiceTypeLoadBalancer
	case ExposeClusterIP, ExposeGateway:
	}
	return corev1.ServiceTypeClusterIP
}

// address is where clients reach the API server behind the Service; errNoAddress while that is not known. Of several addresses of a load balancer, which come in any order, the one that
// kubeconfigs have is kept while it is there.
func (o *Options) address(ref provision.ClusterRef, f found) (*url.URL, error) {
	spec, service := namesOf(f.secret), f.service
	switch {
	case o.Expose == ExposeNodePort:
		if len(service.Spec.Ports) == 0 || service.Spec.Ports[0].NodePort == 0 {
			return nil, errNoAddress
		}
		return httpsURL(o.NodeAddress, service.Spec.Ports[0].NodePort), nil
	case o.Address != "":
		return o.fill(ref, spec)
	case o.Expose == ExposeLoadBalancer:
		var first *url.URL
		for _, ingress := range service.Status.LoadBalancer.Ingress {
			host := cmp.Or(ingress.Hostname, ingress.IP)
			if host == "" {
				continue
			}
			given := httpsURL(host, port)
			if f.served != nil && string(f.served.Data[urlKey]) == given.String() {
				return given, nil
			}
			first = cmp.Or(first, given)
		}
		if first == nil {
			return nil, errNoAddress
		}
		return first, nil
	}
	return url.Parse(serviceURL(ref))
}

func httpsURL(host string, port int32) *url.URL {
	return &url.URL{Scheme: "https", Host: net.JoinHostPort(host, strconv.Itoa(int(port)))}
}

// fill puts what is known of the cluster into the template of addresses.
func (o *Options) fill(ref provision.ClusterRef, spec provision.Spec) (*url.URL, error) {
	filled := strings.NewReplacer("{name}", ref.Name, "{namespace}", ref.Namespace,
		"{clusterName}", spec.ClusterName, "{baseDomain}", spec.BaseDomain).Replace(o.Address)
	address, err := url.Parse(filled)
	if err != nil || address.Scheme != "https" || address.Hostname() == "" {
		return nil, &provision.Problem{Reason: provision.ReasonOther, Message: fmt.Sprintf("the address template %q gives %q, which is no https URL", o.Address, filled)}
	}
	return address, nil
}

// serviceURL is where this operator reaches the API server.
func serviceURL(ref provision.ClusterRef) string {
	return fmt.Sprintf("https://%s.%s.svc:%d", objectName(ref), ref.Namespace, port)
}

// isUnserved says whether a request was for a kind, or a version of it, that the API server does not serve; an object that is missing is another thing.
func isUnserved(err error) bool {
	return meta.IsNoMatchError(err) || apierrors.IsNotFound(err) && !outcome.IsGone(err)
}

// onRoutes does something with TLSRoutes. Where they are not served in the version that this process has read, as after an upgrade of Gateway API, it does it again with what is served now.
func (r *Runtime) onRoutes(do func(client.Client) error) error {
	r.mu.Lock()
	c := r.routes
	r.mu.Unlock()
	err := do(c)
	if isUnserved(err) && r.options.Reopen != nil {
		if c, err = r.options.Reopen(); err != nil {
			return fmt.Errorf("looking for the kind TLSRoute: %w", err)
		}
		r.mu.Lock()
		r.routes = c
		r.mu.Unlock()
		err = do(c)
	}
	if isUnserved(err) {
		return &provision.Problem{Reason: provision.ReasonRefused,
			Message: "hosted clusters are exposed through a Gateway, and this cluster has no kind TLSRoute: install the CustomResourceDefinitions of Gateway API"}
	}
	return err
}

// route is the TLSRoute of a cluster, in the version that the API server prefers as far as the client knows.
func (r *Runtime) route(c client.Client, ref provision.ClusterRef, host string) (*unstructured.Unstructured, error) {
	mapping, err := c.RESTMapper().RESTMapping(tlsRoute)
	if err != nil {
		return nil, err
	}
	labels := map[string]any{}
	for name, value := range labelsOf(ref) {
		labels[name] = value
	}
	route := &unstructured.Unstructured{Object: map[string]any{
		"metadata": map[string]any{"namespace": ref.Namespace, "name": objectName(ref), "labels": labels},
		"spec":     r.options.routeSpec(ref, host),
	}}
	route.SetGroupVersionKind(mapping.GroupVersionKind)
	return route, nil
}

// routeSpec is the spec of the TLSRoute that leads connections for the host to a cluster.
func (o *Options) routeSpec(ref provision.ClusterRef, host string) map[string]any {
	return map[string]any{
		"parentRefs": []any{map[string]any{"namespace": o.Gateway.Namespace, "name": o.Gateway.Name}},
		"hostnames":  []any{host},
		"rules":      []any{map[string]any{"backendRefs": []any{map[string]any{"name": objectName(ref), "port": int64(port)}}}},
	}
}

// exposure is how a cluster is exposed, in one line: what its Service records when all of it is done.
func (o *Options) exposure(ref provision.ClusterRef, names provision.Spec) (string, error) {
	if o.Expose != ExposeGateway {
		return string(o.Expose), nil
	}
	address, err := o.fill(ref, names)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%s %s %s", o.Expose, o.Gateway, address.Hostname()), nil
}

// exposed says whether the Service, and the route to it, are those of the exposure. Of an address that cannot be told something else says so.
func (o *Options) exposed(ref provision.ClusterRef, f found) bool {
	names := namesOf(f.secret)
	want, err := o.exposure(ref, names)
	if err != nil {
		return true
	}
	if o.Expose == ExposeGateway { // another client may have deleted or changed the route
		address, err := o.fill(ref, names)
		if err != nil || !leadsTo(f.route, o.routeSpec(ref, address.Hostname())) {
			return err != nil
		}
	}
	typed := o.Expose.serviceType() // which gives the address, but for a ClusterIP: every type leads to the pod
	return f.service.Annotations[exposureAnnotation] == want && (typed == corev1.ServiceTypeClusterIP || f.service.Spec.Type == typed)
}

// leadsTo says whether a route is there and leads connections as it was made to: from the listeners of the Gateway, by their name, to the Service. The API server adds defaults.
func leadsTo(route *unstructured.Unstructured, made map[string]any) bool {
	if route == nil {
		return false
	}
	spec, _, _ := unstructured.NestedMap(route.Object, "spec")
	parents, backends := map[string]any{"group": tlsRoute.Group, "kind": "Gateway"}, map[string]any{"group": "", "kind": "Service", "weight": int64(1)}
	rules, _, _ := unstructured.NestedSlice(spec, "rules")
	madeRules, _, _ := unstructured.NestedSlice(made, "rules")
	return equality.Semantic.DeepEqual(spec["hostnames"], made["hostnames"]) && alike(spec["parentRefs"], made["parentRefs"], parents) &&
		len(rules) == 1 && len(madeRules) == 1 && alike(backendsOf(rules[0]), backendsOf(madeRules[0]), backends)
}

func backendsOf(rule any) any {
	if rule, ok := rule.(map[string]any); ok {
		return rule["backendRefs"]
	}
	return nil
}

// alike says whether two references, each the only one of its list, are the same with the defaults.
func alike(has, made any, defaults map[string]any) bool {
	hasList, _ := has.([]any)
	madeList, _ := made.([]any)
	if len(hasList) != 1 || len(madeList) != 1 {
		return false
	}
	filled := func(ref any) map[string]any {
		whole := maps.Clone(defaults)
		if ref, ok := ref.(map[string]any); ok {
			maps.Copy(whole, ref)
		}
		return whole
	}
	return equality.Semantic.DeepEqual(filled(hasList[0]), filled(madeList[0]))
}

// routed is the TLSRoute of a cluster; nil where there is none.
func (r *Runtime) routed(ctx context.Context, ref provision.ClusterRef) (*unstructured.Unstructured, error) {
	var found *unstructured.Unstructured
	err := r.onRoutes(func(c client.Client) error {
		route, err := r.route(c, ref, "any")
		if err != nil {
			return err
		}
		if err := c.Get(ctx, client.ObjectKeyFromObject(route), route); err != nil {
			return outcome.IgnoreGone(err)
		}
		found = route
		return nil
	})
	return found, ignoreMissing(err)
}

// ignoreMissing returns nil where the kind of routes is missing.
func ignoreMissing(err error) error {
	if missing := (*provision.Problem)(nil); errors.As(err, &missing) {
		return nil
	}
	return err
}

// expose makes the Service of a cluster, and the route to it where there is a Gateway. The Service does not record an exposure while a route of another one may be there, so that
// an operator that dies in between is followed by one that goes on.
func (r *Runtime) expose(ctx context.Context, ref provision.ClusterRef, identity *corev1.Secret, current *corev1.Service) error {
	if err := r.mendPorts(ctx, current); err != nil {
		return err
	}
	if legacy(identity) {
		return r.apply(ctx, service(ref, r.options.Expose, ""))
	}
	names := namesOf(identity)
	want, err := r.options.exposure(ref, names)
	if err != nil {
		return err
	}
	changed := current == nil || current.Annotations[exposureAnnotation] != want
	if r.options.Expose != ExposeGateway {
		if changed && current != nil {
			if err := r.deleteRoute(ctx, ref); err != nil {
				return err
			}
		}
		return r.apply(ctx, service(ref, r.options.Expose, want))
	}
	if changed {
		if err := r.apply(ctx, service(ref, r.options.Expose, "")); err != nil {
			return err
		}
	}
	if err := r.applyRoute(ctx, ref, names); err != nil {
		return err
	}
	return r.apply(ctx, service(ref, r.options.Expose, want))
}

// hasPort says whether the Service leads its port to that of the API server.
func hasPort(service *corev1.Service) bool {
	return slices.ContainsFunc(service.Spec.Ports, func(p corev1.ServicePort) bool {
		return p.Port == port && p.TargetPort == intstr.FromInt32(port) && p.Protocol == corev1.ProtocolTCP
	})
}

// mendPorts makes the ports of a Service what they were where another client changed them: an apply would leave that client's port, which has the name of the one that is applied.
func (r *Runtime) mendPorts(ctx context.Context, current *corev1.Service) error {
	if current == nil || hasPort(current) {
		return nil
	}
	mended := current.DeepCopy()
	mended.Spec.Ports = []corev1.ServicePort{{Name: portName, Port: port, TargetPort: intstr.FromInt32(port), Protocol: corev1.ProtocolTCP}}
	if len(current.Spec.Ports) > 0 { // clients outside know it
		mended.Spec.Ports[0].NodePort = current.Spec.Ports[0].NodePort
	}
	return r.options.Client.Patch(ctx, mended, client.MergeFrom(current), client.FieldOwner(FieldOwner))
}

// applyRoute leads connections for the host of the cluster through the Gateway to the Service. The route goes with the Service.
func (r *Runtime) applyRoute(ctx context.Context, ref provision.ClusterRef, names provision.Spec) error {
	address, err := r.options.fill(ref, names)
	if err != nil {
		return err
	}
	service := &corev1.Service{}
	if err := r.options.Client.Get(ctx, key(ref, objectName(ref)), service); err != nil {
		return err
	}
	return r.onRoutes(func(c client.Client) error {
		route, err := r.route(c, ref, address.Hostname())
		if err != nil {
			return err
		}
		route.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "v1", Kind: "Service", Name: service.Name, UID: service.UID}})
		return c.Apply(ctx, client.ApplyConfigurationFromUnstructured(route), client.FieldOwner(FieldOwner), client.ForceOwnership)
	})
}

// deleteRoute deletes the route. Where there is no such kind, there is none.
func (r *Runtime) deleteRoute(ctx context.Context, ref provision.ClusterRef) error {
	return ignoreMissing(r.onRoutes(func(c client.Client) error {
		route, err := r.route(c, ref, "any")
		if err != nil {
			return err
		}
		return deleteObject(ctx, c, route)
	}))
}

// ParseGateway reads namespace/name.
func ParseGateway(text string) (types.NamespacedName, error) {
	namespace, name, both := strings.Cut(text, "/")
	if !both || namespace == "" || name == "" || strings.Contains(name, "/") {
		return types.NamespacedName{}, fmt.Errorf("%q is no Gateway: write namespace/name", text)
	}
	return types.NamespacedName{Namespace: namespace, Name: name}, nil
}
