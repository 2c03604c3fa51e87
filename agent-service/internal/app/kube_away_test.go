// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	coordinationv1 "k8s.io/api/coordination/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	agentv1 "github.com/muster-io/muster/apis/agentinstall/v1beta1"
	"github.com/muster-io/muster/apis/porttest"
)

// An API server that goes away is logged whatever the service does at that moment, and custom resources are served when it is back.
func TestAnAPIServerThatIsAwayIsLogged(t *testing.T) {
	t.Parallel()
	for name, one := range map[string]struct {
		// goes selects the request at which the API server goes away, which is not answered.
		goes   func(*http.Request) bool
		held   bool
		single bool
	}{
		"while kinds are looked for":      {goes: func(r *http.Request) bool { return strings.HasPrefix(r.URL.Path, "/apis/agent-install") }},
		"while caches are filled":         {goes: func(r *http.Request) bool { return strings.HasSuffix(r.URL.Path, "/infraenvs") }},
		"while another one has the Lease": {held: true, goes: func(r *http.Request) bool { return strings.Contains(r.URL.Path, "/leases") }},
		"while the Lease is taken": {goes: func(r *http.Request) bool {
			return strings.Contains(r.URL.Path, "/leases") && r.Method == http.MethodPost
		}},
		"without leader election": {single: true, goes: func(r *http.Request) bool {
			return strings.HasPrefix(r.URL.Path, "/api/v1/namespaces/") && strings.Contains(r.URL.Path, "/secrets")
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := unserved(t, func(o *Options) { o.apiInterval = 100 * time.Millisecond })
			c.options.LeaderElect, c.options.LeaderElectionNamespace = !one.single, c.namespace
			permitLease(c)
			var lease *coordinationv1.Lease
			if one.held {
				lease = holdLease(c)
			}
			gone := make(chan struct{})
			c.before = func(r *http.Request) {
				select {
				case <-gone:
				default:
					if one.goes(r) && c.away.CompareAndSwap(false, true) {
						close(gone)
					}
				}
			}
			core, logs := observer.New(zap.InfoLevel)
			c.log = zap.New(core)
			c.start("127.0.0.1:" + porttest.Free(t))
			if one.single {
				c.pullSecret(c.namespace)
				c.create(&agentv1.InfraEnv{
					ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: "first"}, Spec: agentv1.InfraEnvSpec{PullSecretRef: agentv1.SecretReference{Name: "pull"}},
				})
			}
			logged := func(what string) func() bool {
				return func() bool {
					return logs.Filter(func(e observer.LoggedEntry) bool { return strings.HasPrefix(e.Message, what) }).Len() > 0
				}
			}
			require.Eventually(t, logged("custom resources are not served at the moment: "), kubePatience, 50*time.Millisecond)
			if lease != nil {
				require.NoError(t, c.user.Delete(t.Context(), lease))
			}
			c.away.Store(false)
			require.Eventually(t, logged("the API server answers again"), kubePatience, 50*time.Millisecond)
			c.infraEnv("rack")
		})
	}
}

// permitLease gives the account the rights that its Role gives it.
func permitLease(c *cluster) {
	c.Helper()
	c.create(&rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: "agent-service"}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, Verbs: []string{"get", "create", "update"}},
		{APIGroups: []string{""}, Resources: []string{"events"}, Verbs: []string{"create", "patch"}},
	}})
	c.grant(account, c.namespace, rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "agent-service"})
}

// holdLease makes another replica the leader.
func holdLease(c *cluster) *coordinationv1.Lease {
	c.Helper()
	now := metav1.NowMicro()
	lease := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: leaderElectionID},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity: new("another"), LeaseDurationSeconds: new(int32(3600)), AcquireTime: &now, RenewTime: &now,
		},
	}
	c.create(lease)
	return lease
}
