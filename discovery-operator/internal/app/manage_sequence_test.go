// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	metal3v1 "github.com/muster-io/muster/apis/metal3/v1alpha1"
	"github.com/muster-io/muster/discovery-operator/internal/demo"
)

// TestHostsComeToRestWhateverHappens does random things to three machines, their hosts and their operators, and stops: every machine has one
// host and one node, and is on; and when the hosts are deleted, nothing is left.
func TestHostsComeToRestWhateverHappens(t *testing.T) {
	t.Parallel()
	for seed := range uint64(6) {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) { play(t, rand.New(rand.NewPCG(seed, 5))) })
	}
}

const players = 3

func play(t *testing.T, random *rand.Rand) {
	w := newTestEnv(t)
	g := &game{testEnv: w, random: random}
	w.discover("all")
	for i := range players {
		w.secret(g.host(i), "right")
	}
	g.restart()
	for range 40 {
		g.turn()
	}
	g.restart()
	for i := range players {
		w.eventually("the machine is a host", func() bool {
			g.report(i) // a machine that is on reports again when its node is gone
			h := g.host(i)
			return w.Get(t.Context(), client.ObjectKeyFromObject(h), h) == nil && h.HasStatus() && h.DeletionTimestamp == nil
		})
		g.try(g.host(i), `{"spec":{"online":true,"externallyProvisioned":false}}`)
		g.password(i, "right")
	}
	for i := range players {
		h := w.host(fmt.Sprintf("node-%05d", i+1))
		w.patch(h, `{"metadata":{"annotations":{"reboot.metal3.io":null}},"spec":{"bmc":{"address":"`+redfish+`","credentialsName":"`+h.Name+`-bmc"}}}`)
	}
	for i := range players {
		h := w.host(fmt.Sprintf("node-%05d", i+1))
		w.is(h, "the machine is on", func() bool {
			return h.Status.PoweredOn && h.Status.Provisioning.State == metal3v1.StateAvailable && h.Status.ErrorType == ""
		})
	}
	nodes, err := w.rack.Nodes(t.Context(), "")
	require.NoError(t, err)
	assert.Len(t, nodes, players)
	require.Len(t, w.hosts(), players)
	for _, h := range w.hosts() {
		require.NoError(t, w.Delete(t.Context(), &h))
	}
	w.eventually("no object is left", func() bool {
		nodes, err := w.rack.Nodes(t.Context(), "")
		return err == nil && len(nodes) == 0 && len(w.hosts()) == 0
	})
}

// game is an environment in which things happen.
type game struct {
	*testEnv
	random *rand.Rand
	stop   func()
}

func (g *game) host(i int) *metal3v1.BareMetalHost {
	h := &metal3v1.BareMetalHost{}
	h.Namespace, h.Name = g.ns, fmt.Sprintf("node-%05d", i+1)
	return h
}

// report makes a machine report, if Ironic does not know it.
func (g *game) report(i int) { _, _ = g.rack.Enrol(demo.Machine(i + 1)) }

// try changes a host if there is one.
func (g *game) try(h *metal3v1.BareMetalHost, merge string) {
	g.Helper()
	err := g.Patch(g.Context(), h, client.RawPatch(types.MergePatchType, []byte(merge)))
	if !apierrors.IsNotFound(err) {
		require.NoError(g, err)
	}
}

func (g *game) password(i int, password string) {
	g.Helper()
	secret := &corev1.Secret{}
	secret.Namespace, secret.Name = g.ns, g.host(i).Name+"-bmc"
	g.patch(secret, `{"stringData":{"password":"`+password+`"}}`)
}

func (g *game) restart() {
	if g.stop != nil {
		g.stop()
	}
	g.stop = g.operate(managing)
}

func (g *game) turn() {
	g.Helper()
	i := g.random.IntN(players)
	h := g.host(i)
	switch g.random.IntN(11) {
	case 0, 1, 2:
		g.report(i)
	case 3, 4:
		g.try(h, `{"spec":{"bmc":{"address":"`+redfish+`","credentialsName":"`+h.Name+`-bmc"}}}`)
	case 5:
		g.try(h, `{"spec":{"bmc":null}}`)
	case 6:
		g.try(h, fmt.Sprintf(`{"spec":{"online":%t,"externallyProvisioned":%t}}`, g.random.IntN(2) == 0, g.random.IntN(3) == 0))
	case 7:
		g.try(h, `{"metadata":{"annotations":{"reboot.metal3.io":""}}}`)
	case 8: // a client deletes the node in Ironic
		if nodes, err := g.rack.Nodes(g.Context(), ""); err == nil && len(nodes) > 0 {
			_ = g.rack.DeleteNode(g.Context(), nodes[g.random.IntN(len(nodes))].UUID)
		}
	case 9:
		require.NoError(g, client.IgnoreNotFound(g.Delete(g.Context(), h)))
	case 10:
		if g.random.IntN(2) == 0 {
			g.restart()
		} else {
			g.password(i, []string{"right", demo.WrongPassword}[g.random.IntN(2)])
		}
	}
}
