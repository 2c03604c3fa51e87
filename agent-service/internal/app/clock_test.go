// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/muster-io/muster/agent-service/internal/imagetest"
	"github.com/muster-io/muster/agent-service/internal/liveinit"
)

// The image sets its clock before the service can tell it anything: a certificate is not valid in 1970.
func TestAnImageNamesTheTimeServersOfItsInfraEnv(t *testing.T) {
	listener, address := listen(t)
	s := startSite(t, listener, address, http.DefaultClient, imagetest.List(t))
	for settings, want := range map[string]string{
		`,"additional_ntp_sources":"time.example.com,192.0.2.1"`: "AGENT_NTP_SOURCES=time.example.com,192.0.2.1",
		`,"ntp_sources":"time.example.com"`:                      "AGENT_NTP_SOURCES=time.example.com",
		"":                                                       "",
	} {
		_, image := s.infraEnv(settings)
		files, err := liveinit.Files(s.ignition(image))
		require.NoError(t, err)
		found := ""
		for line := range strings.Lines(string(files["/etc/muster/agent.env"].Content)) {
			if strings.HasPrefix(line, "AGENT_NTP") {
				found = strings.TrimSpace(line)
			}
		}
		assert.Equal(t, want, found)
	}
}
