// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package agentclusterinstall

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/muster-io/muster/agent-service/internal/domain"
	"github.com/muster-io/muster/agent-service/internal/lifecycle"
	hiveextv1 "github.com/muster-io/muster/apis/hiveextensions/v1beta1"
)

// installer counts the installations that are begun.
type installer struct {
	Service
	begun int
}

// InstallCluster implements Service.
func (i *installer) InstallCluster(context.Context, domain.Principal, string) (*domain.Cluster, error) {
	i.begun++
	return &domain.Cluster{Status: lifecycle.ClusterPreparing}, nil
}

func TestAnInstallationBeginsWhenItsTimeHasCome(t *testing.T) {
	for name, c := range map[string]struct {
		before domain.Preparation
		begins bool
		waits  bool
	}{
		"no attempt yet":                   {domain.Preparation{}, true, false},
		"the last attempt failed just now": {domain.Preparation{Failures: 1, RetryAt: time.Now().Add(time.Hour)}, false, true},
		"the last attempt is long ago":     {domain.Preparation{Failures: 1, RetryAt: time.Now().Add(-time.Hour)}, true, false},
		"a user cancelled it":              {domain.Preparation{Cancelled: true}, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			counted := &installer{}
			seen := &snapshot{
				install: &hiveextv1.AgentClusterInstall{}, cluster: &domain.Cluster{Status: lifecycle.ClusterReady, Preparation: c.before},
			}
			require.NoError(t, New(Deps{Service: counted}).begin(t.Context(), seen))
			assert.Equal(t, c.begins, counted.begun == 1)
			assert.Equal(t, c.waits, seen.rest > 0)
		})
	}
}
