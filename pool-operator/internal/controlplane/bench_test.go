// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/muster-io/muster/apis/needtest"
)

// testBinaries skips, or fails where nothing may be missing, when there is no control plane to run.
func testBinaries(t testing.TB) Binaries {
	t.Helper()
	found, err := FindBinaries("")
	needtest.NoError(t, err)
	return found
}

func openPlane(t testing.TB, options Options) *Plane {
	t.Helper()
	if options.Dir == "" {
		options.Dir = filepath.Join(t.TempDir(), "plane")
	}
	plane, err := Open(t.Context(), options)
	require.NoError(t, err)
	t.Cleanup(func() { _ = plane.Close() })
	return plane
}

// BenchmarkFirstStart measures from an empty directory to a control plane that is ready.
func BenchmarkFirstStart(b *testing.B) {
	binaries := testBinaries(b)
	for b.Loop() {
		plane := openPlane(b, Options{Dir: filepath.Join(b.TempDir(), "plane"), Binaries: binaries})
		require.NoError(b, plane.Start(b.Context()))
		b.StopTimer()
		require.NoError(b, plane.Destroy())
		b.StartTimer()
	}
}

// BenchmarkResume measures from a stopped control plane to one that is ready.
func BenchmarkResume(b *testing.B) {
	plane := openPlane(b, Options{Binaries: testBinaries(b)})
	require.NoError(b, plane.Start(b.Context()))
	for b.Loop() {
		b.StopTimer()
		plane.Stop(b.Context())
		b.StartTimer()
		require.NoError(b, plane.Start(b.Context()))
	}
}

// BenchmarkStop measures the graceful end of a running control plane.
func BenchmarkStop(b *testing.B) {
	plane := openPlane(b, Options{Binaries: testBinaries(b)})
	for b.Loop() {
		b.StopTimer()
		require.NoError(b, plane.Start(b.Context()))
		b.StartTimer()
		plane.Stop(b.Context())
	}
}
