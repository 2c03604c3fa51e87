// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package baremetalhostdiscovery

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/muster-io/muster/apis/faultinject"
	metal3v1 "github.com/muster-io/muster/apis/metal3/v1alpha1"
	"github.com/muster-io/muster/discovery-operator/internal/demo"
	"github.com/muster-io/muster/discovery-operator/internal/fleet"
	"github.com/muster-io/muster/discovery-operator/internal/inventory"
)

// odd is a rack whose reports have a value of an odd type.
type odd struct{ crashing }

func (o odd) Source(context.Context, string, *metal3v1.IronicReference) (fleet.Source, error) {
	return o, nil
}

func (odd) Report(context.Context, string) (*inventory.Report, error) {
	_, err := inventory.ParseReport([]byte(`{"inventory":{"interfaces":"none"}}`))
	return nil, inventory.Failf(inventory.ProblemRefused, "%v", err)
}

// TestAReportOfAnOddTypeIsLogged looks for the line that says which value of which node cannot be read.
func TestAReportOfAnOddTypeIsLogged(t *testing.T) {
	s := newHarness(t, "a")
	uuid, err := s.rack.Enrol(demo.Machine(1))
	require.NoError(t, err)
	p := s.start(faultinject.Never())
	defer p.end()
	p.Sources = odd{crashing{s.rack, faultinject.Never()}}
	var mu sync.Mutex
	var lines []string
	ctx := logr.NewContext(t.Context(), funcr.NewJSON(func(line string) {
		mu.Lock()
		defer mu.Unlock()
		if strings.Contains(line, `"machine refused"`) {
			lines = append(lines, line)
		}
	}, funcr.Options{}))
	logged := func() []string { mu.Lock(); defer mu.Unlock(); return lines }
	require.Eventually(t, func() bool {
		_, err := p.Reconcile(ctx, ctrl.Request{NamespacedName: types.NamespacedName{Namespace: "ns", Name: "a"}})
		return err == nil && len(logged()) > 0
	}, time.Minute, 5*time.Millisecond)
	require.Len(t, logged(), 1, "once")
	for _, part := range []string{uuid, metal3v1.RefusedDiscoveryFailed, "inventory.interfaces", "which it cannot be"} {
		assert.Contains(t, logged()[0], part)
	}
}
