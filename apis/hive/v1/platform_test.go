// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package v1_test

import (
	"reflect"
	"testing"

	"github.com/stretchr/testify/assert"
	"k8s.io/apimachinery/pkg/runtime"

	hivev1 "github.com/muster-io/muster/apis/hive/v1"
)

// A platform that is added has a name, and where another controller installs, its Secrets are found.
func TestEveryPlatformIsKnown(t *testing.T) {
	names := map[string]bool{}
	for field := range reflect.TypeFor[hivev1.Platform]().Fields() {
		platform := hivev1.Platform{}
		settings := reflect.New(field.Type.Elem())
		reflect.ValueOf(&platform).Elem().FieldByIndex(field.Index).Set(settings)
		assert.NotEmpty(t, platform.Name(), "Platform.Name does not know %s", field.Name)
		assert.False(t, names[platform.Name()], "%s has the name of another platform", field.Name)
		names[platform.Name()] = true
		raw, foreign := reflect.TypeAssert[*runtime.RawExtension](settings)
		if !foreign {
			continue
		}
		raw.Raw = []byte(`{"credentialsSecretRef":{"name":"c"}}`)
		assert.Equal(t, []string{"c"}, platform.SecretNames(), "the Secrets of %s", field.Name)
		assert.Equal(t, map[string]string{"credentialsSecretRef": "c"}, platform.SecretRefs(), "the credentials of %s", field.Name)
	}
}
