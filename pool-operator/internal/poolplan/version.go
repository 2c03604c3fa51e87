// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package poolplan

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"

	hivev1 "github.com/muster-io/muster/apis/hive/v1"
)

// inventoryMarker stands in the version of every pool that has an inventory, whatever its entries are.
const inventoryMarker = "hasInventory"

// Version identifies what makes clusters of a pool differ from those of an earlier spec. It is made of field values in a canonical form, not of Go structs: a field that
// is added to the API later and that is not set changes no version. Once published, a version of a spec never changes; a golden test holds it.
func Version(spec hivev1.ClusterPoolSpec) string {
	fields := []struct{ name, value string }{
		{"platform", canonicalPlatform(spec.Platform)},
		{"baseDomain", spec.BaseDomain},
		{"imageSet", spec.ImageSetRef.Name},
		{"installConfigTemplate", name(spec.InstallConfigSecretTemplateRef)},
		{"customization", name(spec.CustomizationRef)},
		{"installTemplate", canonicalTemplate(spec.ClusterInstallTemplate)},
		{"machinePools", canonicalMachinePools(spec)},
	}
	var text []string
	for _, f := range fields {
		if f.value != "" {
			text = append(text, f.name, f.value)
		}
	}
	if spec.Inventory != nil {
		text = append(text, inventoryMarker)
	}
	// JSON of a list of strings is unambiguous: no value can run into the next.
	encoded, err := json.Marshal(text)
	if err != nil {
		return ""
	}
	sum := sha256.Sum256(encoded)
	return hex.EncodeToString(sum[:16])
}

// Recipe identifies all of a spec that new clusters are made of. In contrast to [Version] it may differ between releases of the operator: nothing but the pause after a failure hangs on it.
func Recipe(spec hivev1.ClusterPoolSpec) string {
	made := hivev1.ClusterPoolSpec{
		Platform: spec.Platform, PullSecretRef: spec.PullSecretRef, BaseDomain: spec.BaseDomain, ImageSetRef: spec.ImageSetRef, Labels: spec.Labels, Annotations: spec.Annotations,
		InstallConfigSecretTemplateRef: spec.InstallConfigSecretTemplateRef, InstallAttemptsLimit: spec.InstallAttemptsLimit, InstallerEnv: spec.InstallerEnv,
		CustomizationRef: spec.CustomizationRef, ClusterInstallTemplate: spec.ClusterInstallTemplate, InstallTimeout: spec.InstallTimeout,
		MachinePools: MachinePools(spec),
	}
	sum := sha256.Sum256([]byte(canonical(made)))
	return hex.EncodeToString(sum[:8])
}

func name(ref *hivev1.LocalObjectReference) string {
	if ref == nil {
		return ""
	}
	return ref.Name
}

func canonicalPlatform(platform hivev1.Platform) string {
	return canonical(platform)
}

// canonicalTemplate is empty without a template, so that pools without one have the version that they always had.
func canonicalTemplate(template *hivev1.ClusterInstallTemplate) string {
	if template == nil {
		return ""
	}
	return canonical(template)
}

// canonicalMachinePools is empty without MachinePools, so that pools without them have the version that they always had.
func canonicalMachinePools(spec hivev1.ClusterPoolSpec) string {
	pools := MachinePools(spec)
	if len(pools) == 0 {
		return ""
	}
	return canonical(pools)
}

// MachinePools are those that each cluster of a pool gets.
func MachinePools(spec hivev1.ClusterPoolSpec) []hivev1.ClusterPoolMachinePool {
	if spec.SkipMachinePools {
		return nil
	}
	return spec.MachinePools
}

// canonical is the JSON of v with sorted keys, without white space and without nulls.
func canonical(v any) string {
	raw, err := json.Marshal(v)
	if err != nil {
		return ""
	}
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber()
	var tree any
	if err := decoder.Decode(&tree); err != nil {
		return ""
	}
	out, err := json.Marshal(withoutNulls(tree))
	if err != nil {
		return ""
	}
	return string(out)
}

func withoutNulls(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for key, value := range v {
			if value == nil {
				delete(v, key)
				continue
			}
			v[key] = withoutNulls(value)
		}
	case []any:
		for i := range v {
			v[i] = withoutNulls(v[i])
		}
	}
	return v
}
