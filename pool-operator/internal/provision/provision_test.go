// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package provision_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/muster-io/muster/pool-operator/internal/provision"
)

func TestCredentialsDoNotPrint(t *testing.T) {
	access := provision.Access{Kubeconfig: []byte("the kubeconfig"), Password: "the password"}
	encoded, err := json.Marshal(map[string]any{"access": access})
	require.NoError(t, err)
	for _, text := range []string{
		fmt.Sprint(access), fmt.Sprint(&access), fmt.Sprintf("%v %+v %#v %s %q %x", access, access, access, access, access, access),
		fmt.Sprint(access.MarshalLog()), access.String(), string(encoded),
	} {
		assert.NotContains(t, text, "the password")
		assert.NotContains(t, text, "the kubeconfig")
		assert.NotContains(t, text, fmt.Sprintf("%x", "the password"))
	}
}

func TestEveryErrorIsAProblem(t *testing.T) {
	known := &provision.Problem{Reason: provision.ReasonDiskFull, Message: "there is no room"}
	assert.Nil(t, provision.AsProblem(nil))
	assert.Same(t, known, provision.AsProblem(fmt.Errorf("starting: %w", known)))
	assert.Equal(t, &provision.Problem{Reason: provision.ReasonOther, Message: "odd"}, provision.AsProblem(errors.New("odd")))
}
