// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package description_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/stretchr/testify/require"

	"github.com/muster-io/muster/agent-service/api"
	"github.com/muster-io/muster/agent-service/internal/httpapi/description"
)

func TestAnArchiveOfLogsIsNotReadBeforeItIsKnownWhetherItIsTaken(t *testing.T) {
	t.Parallel()
	document, err := openapi3.NewLoader().LoadFromData(api.Spec())
	require.NoError(t, err)
	for pattern, operation := range description.Operations(document) {
		if !operation.TakesLogs() {
			continue
		}
		request := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/?logs_type=host", unreadable{})
		request.SetPathValue("cluster_id", "11111111-1111-4111-8111-111111111111")
		request.Header.Set("Content-Type", "multipart/form-data; boundary=x")
		require.NoError(t, operation.Check(request), pattern)
		return
	}
	t.Fatal("no operation takes logs")
}

type unreadable struct{}

// Read implements io.Reader.
func (unreadable) Read([]byte) (int, error) { return 0, errors.New("the body was read") }
