// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
)

func TestADataDirectoryBelongsToOneServer(t *testing.T) {
	server := func(uid types.UID) client.Reader {
		return fake.NewClientBuilder().WithObjects(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "kube-system", UID: uid}}).Build()
	}
	dir := filepath.Join(t.TempDir(), "hosted")
	require.NoError(t, claimDataDir(t.Context(), server("first"), dir), "a new directory is taken")
	require.NoError(t, claimDataDir(t.Context(), server("first"), dir), "and is the same server's for ever")
	err := claimDataDir(t.Context(), server("second"), dir)
	require.Error(t, err, "data of one server's clusters looks orphaned to every other")
	assert.Contains(t, err.Error(), "another API server")
	require.NoError(t, claimDataDir(t.Context(), server("second"), t.TempDir()))
}
