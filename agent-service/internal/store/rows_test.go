// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"testing"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/muster-io/muster/agent-service/internal/domain"
	"github.com/muster-io/muster/agent-service/internal/hardware"
	"github.com/muster-io/muster/agent-service/internal/lifecycle"
	"github.com/muster-io/muster/agent-service/internal/validate"
)

func TestHostsThatAreReadShareWhatTheyHaveInCommon(t *testing.T) {
	h := &domain.Host{
		HostKey: domain.HostKey{InfraEnvID: "e", HostID: "1"}, Owner: domain.Owner{User: "ann", Organization: "rack"}, ClusterID: "c", State: lifecycle.Known, StateInfo: "Host is ready", AgentVersion: "v0.1", Revision: 7,
		HostSettings: domain.HostSettings{Role: "worker"}, Summary: hardware.Summary{CPUArchitecture: "x86_64", Manufacturer: "Muster", ProductName: "Generated", SerialNumber: "s"},
		Validations: []validate.Result{{ID: "has-min-memory", Category: "hardware", Status: validate.Success, Message: "The host has enough memory"}},
		NTPSources:  []validate.NTPSource{{Name: "time.example.com", State: "synced"}},
	}
	doc, err := encode(h)
	require.NoError(t, err)
	read := make([]*domain.Host, 2)
	for i := range read {
		read[i], err = hostRow{Revision: h.Revision, Doc: doc}.decode()
		require.NoError(t, err)
		assert.Equal(t, h, read[i], "nothing of it is another text")
	}
	for name, of := range map[string]func(*domain.Host) string{
		"infra-env":  func(h *domain.Host) string { return h.InfraEnvID },
		"state":      func(h *domain.Host) string { return string(h.State) },
		"product":    func(h *domain.Host) string { return h.Summary.ProductName },
		"validation": func(h *domain.Host) string { return h.Validations[0].ID },
		"message":    func(h *domain.Host) string { return h.Validations[0].Message },
	} {
		assert.Same(t, unsafe.StringData(of(read[0])), unsafe.StringData(of(read[1])), name)
	}
}
