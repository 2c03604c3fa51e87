// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package allocate

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	ipamv1 "github.com/muster-io/muster/apis/ipam/v1alpha1"
	"github.com/muster-io/muster/ipam-operator/internal/ipset"
)

// readSamples reads the documents of deploy/samples/ipam that are of a kind.
func readSamples[T any](t *testing.T, kind string) []T {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("..", "..", "..", "deploy", "samples", "ipam", "*.yaml"))
	require.NoError(t, err)
	var out []T
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		for document := range strings.SplitSeq(string(text), "\n---\n") {
			if !strings.Contains(document, "\nkind: "+kind+"\n") {
				continue
			}
			var object T
			require.NoError(t, yaml.Unmarshal([]byte(document), &object))
			out = append(out, object)
		}
	}
	return out
}

// Whatever the order in which the claims of the samples are served, and whatever addresses are drawn, each gets the one that it asks for: users and the demo wait for all of them.
func TestNoClaimOfTheSamplesIsGivenTheAddressThatAnotherAsksFor(t *testing.T) {
	pools, claims := readSamples[ipamv1.IPPool](t, "IPPool"), readSamples[ipamv1.IPClaim](t, "IPClaim")
	require.NotEmpty(t, pools)
	random := rand.New(rand.NewPCG(1, 2))
	for i := range pools {
		pool := &pools[i]
		mine := slices.DeleteFunc(slices.Clone(claims), func(c ipamv1.IPClaim) bool { return c.Spec.Pool.Name != pool.Name })
		for range 500 {
			random.Shuffle(len(mine), func(a, b int) { mine[a], mine[b] = mine[b], mine[a] })
			free := NewFree(Parse(&pool.Spec, ipamv1.SequentialAllocation))
			for j := range mine {
				claim := Claim{Name: mine[j].Name, PrefixLength: mine[j].Spec.PrefixLength, Requested: mine[j].Annotations[ipamv1.RequestedAddressAnnotation]}
				decision := Plan(Snapshot{
					Claim: claim, Pool: Pool{Name: pool.Name, Found: true, Allows: true, Finalized: true, Free: free},
					Random: ipset.Number{Hi: random.Uint64(), Lo: random.Uint64()},
				})
				create, ok := decision.Action.(Create)
				require.True(t, ok, "%s, served as number %d of %d: %+v", claim.Name, j+1, len(mine), decision)
				if claim.Requested != "" {
					assert.Equal(t, claim.Requested, create.IP.String())
				}
				free.Occupy(create.IP, create.PrefixLength)
			}
		}
	}
}
