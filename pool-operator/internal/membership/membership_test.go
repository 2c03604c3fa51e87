// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package membership_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	hivev1 "github.com/muster-io/muster/apis/hive/v1"
	"github.com/muster-io/muster/pool-operator/internal/membership"
)

var pool = types.NamespacedName{Namespace: "team", Name: "p"}

func cluster(namespace, name string) *hivev1.ClusterDeployment {
	cd := &hivev1.ClusterDeployment{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(namespace + "/" + name)}}
	cd.Spec.ClusterPoolRef = &hivev1.ClusterPoolReference{Namespace: pool.Namespace, PoolName: pool.Name}
	return cd
}

func TestTheNamespaceProvesThePool(t *testing.T) {
	for name, test := range map[string]struct {
		cluster *hivev1.ClusterDeployment
		labels  map[string]string
		want    bool
	}{
		"the operator made it":                       {cluster("x", "x"), membership.Labels(pool), true},
		"a namespace without labels":                 {cluster("x", "x"), nil, false},
		"the pool's name alone":                      {cluster("x", "x"), map[string]string{hivev1.LabelNamespaceClusterPoolName: "p"}, false},
		"a pool of that name in another namespace":   {cluster("x", "x"), membership.Labels(types.NamespacedName{Namespace: "other", Name: "p"}), false},
		"another pool":                               {cluster("x", "x"), membership.Labels(types.NamespacedName{Namespace: "team", Name: "q"}), false},
		"a second one in the namespace of a cluster": {cluster("x", "y"), membership.Labels(pool), false},
		"one of no pool":                             {&hivev1.ClusterDeployment{ObjectMeta: metav1.ObjectMeta{Namespace: "x", Name: "x"}}, membership.Labels(pool), false},
		"one that names nothing":                     {&hivev1.ClusterDeployment{Spec: hivev1.ClusterDeploymentSpec{ClusterPoolRef: &hivev1.ClusterPoolReference{}}}, nil, false},
	} {
		t.Run(name, func(t *testing.T) { assert.Equal(t, test.want, membership.Proved(test.cluster, test.labels)) })
	}
}

func reader(reads *int, fail error, namespaces ...client.Object) client.Reader {
	return fake.NewClientBuilder().WithObjects(namespaces...).WithInterceptorFuncs(interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
			*reads++
			if fail != nil {
				return fail
			}
			return c.Get(ctx, key, obj, opts...)
		},
	}).Build()
}

func namespace(name string, labels map[string]string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
}

func TestACacheThatIsBehindDecidesNothing(t *testing.T) {
	var cached, live int
	p := membership.NewProver(reader(&cached, nil), reader(&live, nil, namespace("x", membership.Labels(pool)), namespace("y", nil)))
	for range 3 {
		member, first, err := p.Member(t.Context(), cluster("x", "x"))
		require.NoError(t, err)
		assert.True(t, member, "the API server has the proof")
		assert.False(t, first)
	}
	live = 0
	for i := range 3 {
		member, first, err := p.Member(t.Context(), cluster("y", "y"))
		require.NoError(t, err)
		assert.False(t, member)
		assert.Equal(t, i == 0, first, "it is news once")
	}
	assert.Equal(t, 1, live, "a foreign cluster costs one read, however often it is looked at")
}

func TestALabelThatIsAddedLaterCounts(t *testing.T) {
	var reads int
	later := fake.NewClientBuilder().WithObjects(namespace("x", nil)).Build()
	p := membership.NewProver(later, reader(&reads, nil, namespace("x", nil)))
	member, _, err := p.Member(t.Context(), cluster("x", "x"))
	require.NoError(t, err)
	require.False(t, member)
	require.NoError(t, later.Update(t.Context(), namespace("x", membership.Labels(pool))))
	member, _, err = p.Member(t.Context(), cluster("x", "x"))
	require.NoError(t, err)
	assert.True(t, member)
}

func TestAFailedReadIsAnError(t *testing.T) {
	var reads int
	p := membership.NewProver(reader(&reads, nil), reader(&reads, errors.New("the wire is cut")))
	_, _, err := p.Member(t.Context(), cluster("x", "x"))
	require.ErrorContains(t, err, "the wire is cut")
}
