// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package poolplan_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime"

	hivev1 "github.com/muster-io/muster/apis/hive/v1"
	"github.com/muster-io/muster/pool-operator/internal/poolplan"
	"github.com/muster-io/muster/pool-operator/internal/testobj"
)

func aws(raw string) testobj.PoolOption {
	return func(p *hivev1.ClusterPool) {
		p.Spec.Platform = hivev1.Platform{AWS: &runtime.RawExtension{Raw: []byte(raw)}}
	}
}

// workers are machines of each cluster.
func workers(replicas int64) testobj.PoolOption {
	return func(p *hivev1.ClusterPool) {
		p.Spec.MachinePools = []hivev1.ClusterPoolMachinePool{{
			Name: "worker", Replicas: replicas, Platform: hivev1.MachinePoolPlatform{AgentBareMetal: &hivev1.AgentBareMetalMachinePool{}},
		}}
	}
}

func TestMachinesAreAPartOfTheVersion(t *testing.T) {
	versions := map[string]bool{
		poolplan.Version(testobj.Pool("p").Spec): true, poolplan.Version(testobj.Pool("p", workers(1)).Spec): true, poolplan.Version(testobj.Pool("p", workers(2)).Spec): true,
	}
	require.Len(t, versions, 3)
}

// The values must never change: they are what clusters in the field carry, and another value would replace all of them.
func TestVersionIsWhatItAlwaysWas(t *testing.T) {
	for name, c := range map[string]struct {
		options []testobj.PoolOption
		version string
	}{
		"hosted":                         {nil, "ec0a366409f8df69744bd3f7047711ae"},
		"another image set":              {[]testobj.PoolOption{testobj.ImageSet("release-1")}, "482bc4da3c795d0b09329127604b8c65"},
		"with an inventory":              {[]testobj.PoolOption{testobj.ImageSet("release-1"), testobj.Inventory("red")}, "4a0273458d6d231e8ea92ac7ea549cef"},
		"with an empty inventory":        {[]testobj.PoolOption{testobj.ImageSet("release-1"), testobj.Inventory()}, "4a0273458d6d231e8ea92ac7ea549cef"},
		"a platform of others":           {[]testobj.PoolOption{aws(`{"region":"us-east-1","credentialsSecretRef":{"name":"aws"}}`)}, "10ff913c5da848e4c883f0ffa858116d"},
		"the same, written anew":         {[]testobj.PoolOption{aws(`{ "credentialsSecretRef": {"name":"aws"}, "region":"us-east-1", "userTags": null }`)}, "10ff913c5da848e4c883f0ffa858116d"},
		"with an install template":       {[]testobj.PoolOption{testobj.InstallConfigTemplate("template")}, "92f095af64aad5d17dce049668176536"},
		"machine pools that are skipped": {[]testobj.PoolOption{workers(2), func(p *hivev1.ClusterPool) { p.Spec.SkipMachinePools = true }}, "ec0a366409f8df69744bd3f7047711ae"},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, c.version, poolplan.Version(testobj.Pool("p", c.options...).Spec))
		})
	}
}

func TestVersionIgnoresWhatMakesNoOtherCluster(t *testing.T) {
	version := poolplan.Version(testobj.Pool("p").Spec)
	for name, option := range map[string]testobj.PoolOption{
		"size":                 testobj.Size(9),
		"maxSize":              testobj.MaxSize(9),
		"maxConcurrent":        testobj.MaxConcurrent(9),
		"runningCount":         testobj.RunningCount(9),
		"pull secret":          testobj.PullSecret("secret"),
		"resumeTimeout":        testobj.ResumeTimeout(1),
		"labels":               func(p *hivev1.ClusterPool) { p.Spec.Labels = map[string]string{"a": "b"} },
		"annotations":          func(p *hivev1.ClusterPool) { p.Spec.Annotations = map[string]string{"a": "b"} },
		"installAttemptsLimit": func(p *hivev1.ClusterPool) { p.Spec.InstallAttemptsLimit = new(int32) },
		"claimPolicy":          func(p *hivev1.ClusterPool) { p.Spec.ClaimPolicy = hivev1.ClaimPolicyRunningFirst },
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, version, poolplan.Version(testobj.Pool("p", option).Spec))
		})
	}
}
