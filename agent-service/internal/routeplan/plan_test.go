// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package routeplan_test

import (
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-io/muster/agent-service/internal/routeplan"
)

var cluster = []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16"), netip.MustParsePrefix("fd00:1::/48")}

// node is one that was made some minutes after the first.
func node(name string, minutes int, address string, pods ...string) *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.Time{Time: time.Unix(1_000_000, 0).Add(time.Duration(minutes) * time.Minute)}},
		Spec:       corev1.NodeSpec{PodCIDRs: pods},
		Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{
			{Type: corev1.NodeHostName, Address: name}, {Type: corev1.NodeInternalIP, Address: address}, {Type: corev1.NodeInternalIP, Address: "fd00::" + address[len(address)-1:]},
		}},
	}
}

func route(to, via string) routeplan.Route {
	return routeplan.Route{To: netip.MustParsePrefix(to), Via: netip.MustParseAddr(via)}
}

func TestANodeRoutesToThePodsOfOthers(t *testing.T) {
	self := node("self", 5, "192.0.2.5", "10.244.5.0/24", "fd00:1:0:5::/64")
	for name, c := range map[string]struct {
		others []*corev1.Node
		want   []routeplan.Route
	}{
		"alone":           {nil, nil},
		"both families":   {[]*corev1.Node{node("a", 1, "192.0.2.1", "10.244.1.0/24", "fd00:1:0:1::/64")}, []routeplan.Route{route("10.244.1.0/24", "192.0.2.1"), route("fd00:1:0:1::/64", "fd00::1")}},
		"no range yet":    {[]*corev1.Node{node("a", 1, "192.0.2.1")}, nil},
		"no address yet":  {[]*corev1.Node{{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Spec: corev1.NodeSpec{PodCIDRs: []string{"10.244.1.0/24"}}}}, nil},
		"the Internet":    {[]*corev1.Node{node("a", 1, "192.0.2.1", "0.0.0.0/0")}, nil},
		"another network": {[]*corev1.Node{node("a", 1, "192.0.2.1", "192.0.2.0/24")}, nil},
		"all pods":        {[]*corev1.Node{node("a", 1, "192.0.2.1", "10.244.0.0/16")}, nil},
		"its own pods":    {[]*corev1.Node{node("a", 1, "192.0.2.1", "10.244.5.0/25")}, nil},
		"the pods of an older one": {
			[]*corev1.Node{node("new", 9, "192.0.2.9", "10.244.1.128/25"), node("old", 1, "192.0.2.1", "10.244.1.0/24")}, []routeplan.Route{route("10.244.1.0/24", "192.0.2.1")},
		},
		"those of one that is as old": {
			[]*corev1.Node{node("b", 1, "192.0.2.2", "10.244.1.0/24"), node("a", 1, "192.0.2.1", "10.244.1.0/24")}, []routeplan.Route{route("10.244.1.0/24", "192.0.2.1")},
		},
		"no range at all": {[]*corev1.Node{node("a", 1, "192.0.2.1", "pods")}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			assert.ElementsMatch(t, c.want, routeplan.Plan(append(c.others, self), "self", cluster))
		})
	}
}
