// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package podnetwork keeps the routes of a node to the pods of others, and masquerades what pods send out of the cluster.
package podnetwork

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/muster-io/muster/agent-service/internal/routeplan"
)

const (
	// protocol marks routes of this package: the kernel leaves numbers above 4 to daemons.
	protocol = 109
	// resync is how often routes are looked at without a change of Nodes: a link that was down has lost them.
	resync = 30 * time.Second
)

// Options of a node's network of pods.
type Options struct {
	// Kubeconfig is the path of the node's.
	Kubeconfig string
	// Node is the name of this node.
	Node string
	// PodCIDRs are the ranges of all pods in the cluster, at most one per address family.
	PodCIDRs []netip.Prefix
	// Say gets a line for each event.
	Say func(format string, values ...any)
}

// Run keeps routes and masquerading until ctx is done. Routes stay afterwards: pods outlive this program.
func Run(ctx context.Context, o Options) error {
	if err := masquerade(ctx, o.PodCIDRs); err != nil {
		return err
	}
	nodes, err := watcher(o.Kubeconfig)
	if err != nil {
		return err
	}
	changed := make(chan struct{}, 1)
	notify := func() {
		select {
		case changed <- struct{}{}:
		default:
		}
	}
	store, informer := cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: nodes, ObjectType: &corev1.Node{}, Transform: shrink,
		Handler: cache.ResourceEventHandlerFuncs{AddFunc: func(any) { notify() }, UpdateFunc: func(any, any) { notify() }, DeleteFunc: func(any) { notify() }},
	})
	go informer.RunWithContext(ctx)
	if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
		return ctx.Err()
	}
	again := time.NewTicker(resync)
	defer again.Stop()
	for {
		var all []*corev1.Node
		for _, object := range store.List() {
			all = append(all, object.(*corev1.Node)) //nolint:forcetypeassert // the informer has no others
		}
		if err := Sync(routeplan.Plan(all, o.Node, o.PodCIDRs), o.Say); err != nil {
			o.Say("%v", err)
		}
		select {
		case <-changed:
		case <-again.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// watcher lists and watches Nodes with the node's credentials.
func watcher(kubeconfig string) (cache.ListerWatcher, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("reading the kubeconfig: %w", err)
	}
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		return nil, err
	}
	config.APIPath, config.GroupVersion, config.NegotiatedSerializer = "/api", &corev1.SchemeGroupVersion, serializer.NewCodecFactory(scheme).WithoutConversion()
	config.ContentType, config.AcceptContentTypes = runtime.ContentTypeProtobuf, runtime.ContentTypeProtobuf+","+runtime.ContentTypeJSON
	client, err := rest.RESTClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("making a client: %w", err)
	}
	return cache.NewListWatchFromClient(client, "nodes", "", fields.Everything()), nil
}

// shrink keeps what routeplan.Plan reads of a Node.
func shrink(object any) (any, error) {
	node, ok := object.(*corev1.Node)
	if !ok {
		return object, nil
	}
	small := &corev1.Node{Spec: corev1.NodeSpec{PodCIDRs: node.Spec.PodCIDRs}, Status: corev1.NodeStatus{Addresses: node.Status.Addresses}}
	small.Name, small.ResourceVersion, small.CreationTimestamp = node.Name, node.ResourceVersion, node.CreationTimestamp
	return small, nil
}

// Sync makes the kernel's routes of this package those that are wanted; routes of others stay. Routes that the kernel refuses, such as
// a route by an address that is on no link, is in the error, and keeps no other route from being made.
func Sync(wanted []routeplan.Route, say func(format string, values ...any)) error {
	present, err := netlink.RouteListFiltered(netlink.FAMILY_ALL, &netlink.Route{Protocol: protocol}, netlink.RT_FILTER_PROTOCOL)
	if err != nil {
		return fmt.Errorf("reading routes: %w", err)
	}
	var errs []error
	var kept []routeplan.Route
	for i := range present {
		is := routeOf(present[i])
		if slices.Contains(wanted, is) {
			kept = append(kept, is)
			continue
		}
		if err := netlink.RouteDel(&present[i]); err != nil && !errors.Is(err, unix.ESRCH) {
			errs = append(errs, fmt.Errorf("deleting the route to pods in %s: %w", is.To, err))
			continue
		}
		say("no route to pods in %s by %s", is.To, is.Via)
	}
	for _, r := range wanted {
		if slices.Contains(kept, r) {
			continue
		}
		if err := netlink.RouteReplace(&netlink.Route{Dst: ipNet(r.To), Gw: r.Via.AsSlice(), Protocol: protocol}); err != nil {
			errs = append(errs, fmt.Errorf("routing to pods in %s by %s: %w", r.To, r.Via, err))
			continue
		}
		say("route to pods in %s by %s", r.To, r.Via)
	}
	return errors.Join(errs...)
}

func routeOf(r netlink.Route) routeplan.Route {
	var is routeplan.Route
	if r.Dst != nil {
		address, _ := netip.AddrFromSlice(r.Dst.IP)
		bits, _ := r.Dst.Mask.Size()
		is.To = netip.PrefixFrom(address.Unmap(), bits)
	}
	via, _ := netip.AddrFromSlice(r.Gw)
	is.Via = via.Unmap()
	return is
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

// masquerade gives packets of pods that leave the cluster the address of the node. Pods see each other's own addresses.
func masquerade(ctx context.Context, pods []netip.Prefix) error {
	command := exec.CommandContext(ctx, "nft", "-f", "-")
	command.Stdin = strings.NewReader(rules(pods))
	if said, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("masquerading pods: %w: %s", err, said)
	}
	return nil
}

// rules replace the table of this package.
func rules(pods []netip.Prefix) string {
	const table = "table inet muster-pods"
	var text strings.Builder
	text.WriteString(table + "\ndelete " + table + "\n" + table + " {\n  chain postrouting {\n    type nat hook postrouting priority srcnat\n")
	for _, p := range pods {
		family, multicast := "ip", "224.0.0.0/4"
		if p.Addr().Is6() {
			family, multicast = "ip6", "ff00::/8"
		}
		fmt.Fprintf(&text, "    %s saddr %s %[1]s daddr != { %[2]s, %s } masquerade\n", family, p, multicast)
	}
	text.WriteString("  }\n}\n")
	return text.String()
}
