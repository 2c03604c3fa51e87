// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package buildinfo_test

import (
	"runtime"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/muster-io/muster/apis/buildinfo"
)

func TestDescribe(t *testing.T) {
	assert.Equal(t, "pool-operator dev "+runtime.Version()+" "+runtime.GOOS+"/"+runtime.GOARCH, buildinfo.Describe("pool-operator"))
	assert.Equal(t, "dev", buildinfo.Version())
}

func TestPrint(t *testing.T) {
	var out strings.Builder
	assert.False(t, buildinfo.Print(&out, "p", nil))
	assert.False(t, buildinfo.Print(&out, "p", []string{"--log-level=info"}))
	assert.Empty(t, out.String())
	assert.True(t, buildinfo.Print(&out, "p", []string{"--version"}))
	assert.Equal(t, buildinfo.Describe("p")+"\n", out.String())
}

func TestMetric(t *testing.T) {
	require.NoError(t, testutil.CollectAndCompare(buildinfo.Metric("pool-operator"), strings.NewReader(
		"# HELP muster_build_info Which build runs; always 1.\n# TYPE muster_build_info gauge\n"+
			`muster_build_info{goversion="`+runtime.Version()+`",program="pool-operator",version="dev"} 1`+"\n",
	)))
}
