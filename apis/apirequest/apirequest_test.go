// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package apirequest_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/muster-io/muster/apis/apirequest"
)

func TestRequestsAreNamedByVerbAndResource(t *testing.T) {
	for name, c := range map[string]struct {
		method, path, content, verb, resource string
	}{
		"list":                                  {"GET", "/api/v1/pods", "", "list", "pods"},
		"list in a namespace":                   {"GET", "/api/v1/namespaces/a/pods", "", "list", "pods"},
		"watch":                                 {"GET", "/apis/hive.openshift.io/v1/clusterpools?watch=true", "", "watch", "clusterpools"},
		"get":                                   {"GET", "/apis/hive.openshift.io/v1/namespaces/a/clusterpools/p", "", "get", "clusterpools"},
		"create":                                {"POST", "/apis/hive.openshift.io/v1/namespaces/a/clusterpools", "", "create", "clusterpools"},
		"create a namespace":                    {"POST", "/api/v1/namespaces", "", "create", "namespaces"},
		"delete a namespace":                    {"DELETE", "/api/v1/namespaces/a", "", "delete", "namespaces"},
		"status of a namespace":                 {"PUT", "/api/v1/namespaces/a/status", "", "update", "namespaces/status"},
		"patch a status":                        {"PATCH", "/apis/hive.openshift.io/v1/namespaces/a/clusterpools/p/status", "application/merge-patch+json", "patch", "clusterpools/status"},
		"delete":                                {"DELETE", "/api/v1/namespaces/a/secrets/s", "", "delete", "secrets"},
		"apply":                                 {"PATCH", "/api/v1/namespaces/a/secrets/s", "application/apply-patch+yaml", "apply", "secrets"},
		"a path of no resource has no resource": {"GET", "/version", "", "list", "none"},
	} {
		t.Run(name, func(t *testing.T) {
			request, err := http.NewRequestWithContext(t.Context(), c.method, "https://server"+c.path, http.NoBody)
			require.NoError(t, err)
			request.Header.Set("Content-Type", c.content)
			verb, resource := apirequest.Of(request)
			assert.Equal(t, c.verb, verb)
			assert.Equal(t, c.resource, resource)
		})
	}
}
