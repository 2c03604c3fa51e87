// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package fake_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/muster-io/muster/pool-operator/internal/controller/clusterdeployment"
	"github.com/muster-io/muster/pool-operator/internal/provision"
	"github.com/muster-io/muster/pool-operator/internal/provision/contract"
	"github.com/muster-io/muster/pool-operator/internal/provision/fake"
)

func TestContract(t *testing.T) {
	backend := fake.NewBackend()
	var marks sync.Map
	contract.Run(t, contract.Harness{
		Open:  func(*testing.T) clusterdeployment.Runtime { return backend.Open() },
		Crash: func(*testing.T, clusterdeployment.Runtime) {},
		Kill: func(_ *testing.T, ref provision.ClusterRef) {
			backend.Fail(ref, provision.Problem{Reason: provision.ReasonProcessDied, Component: "etcd", Message: "etcd ended with exit code 2"})
		},
		Namespace: func(*testing.T) string { return "clusters" },
		Use:       func(_ context.Context, access provision.Access) error { return backend.Check(access) },
		Remember: func(_ context.Context, access provision.Access, mark string) error {
			marks.Store(access.Password, mark)
			return backend.Check(access)
		},
		Recall: func(_ context.Context, access provision.Access) (string, error) {
			mark, ok := marks.Load(access.Password)
			if !ok {
				return "", fmt.Errorf("the cluster keeps no data")
			}
			return mark.(string), backend.Check(access)
		},
		Leftovers: func(_ context.Context, ref provision.ClusterRef) ([]string, error) {
			if backend.Has(ref) {
				return []string{ref.String()}, nil
			}
			return nil, nil
		},
		Timeout: time.Minute,
	})
}
