// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package app_test

import (
	"flag"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/muster-io/muster/pool-operator/internal/app"
)

func TestParseOptions(t *testing.T) {
	for name, c := range map[string]struct {
		arguments []string
		refusal   string
	}{
		"no flag is needed":                          {nil, ""},
		"processes need a data directory":            {[]string{"--hosted-runtime=process"}, "needs --hosted-data-dir"},
		"processes with a data directory":            {[]string{"--hosted-runtime=process", "--hosted-data-dir=/data"}, ""},
		"clusters listen where nodes reach them":     {[]string{"--hosted-runtime=process", "--hosted-data-dir=/data", "--hosted-listen-address=192.0.2.1"}, ""},
		"clusters listen on an address":              {[]string{"--hosted-runtime=process", "--hosted-data-dir=/data", "--hosted-listen-address=rack"}, "write an IP address of this machine"},
		"programs are in a directory that is there":  {[]string{"--hosted-runtime=process", "--hosted-data-dir=/data", "--hosted-bin-dir=/proc/self/fd"}, ""},
		"a directory that is not there is refused":   {[]string{"--hosted-runtime=process", "--hosted-data-dir=/data", "--hosted-bin-dir=/nowhere/bin"}, "--hosted-bin-dir=/nowhere/bin: there is no such directory"},
		"also with pods":                             {[]string{"--hosted-runtime=pod", "--hosted-image=i", "--hosted-bin-dir=/nowhere/bin"}, "--hosted-bin-dir=/nowhere/bin: there is no such directory"},
		"also without hosted clusters":               {[]string{"--hosted-bin-dir=/nowhere/bin"}, "--hosted-bin-dir=/nowhere/bin: there is no such directory"},
		"a file is no directory of programs":         {[]string{"--hosted-runtime=process", "--hosted-data-dir=/data", "--hosted-bin-dir=/proc/self/status"}, "there is no such directory"},
		"processes live on one machine":              {[]string{"--hosted-runtime=process", "--hosted-data-dir=/data", "--leader-elect"}, "exclude each other"},
		"pods need an image":                         {[]string{"--hosted-runtime=pod"}, "needs --hosted-image"},
		"pods behind a Gateway":                      {[]string{"--hosted-runtime=pod", "--hosted-image=i", "--hosted-expose=Gateway", "--hosted-gateway=infra/public", "--hosted-address=https://{name}:443"}, ""},
		"a Gateway needs names":                      {[]string{"--hosted-runtime=pod", "--hosted-image=i", "--hosted-expose=Gateway", "--hosted-gateway=infra/public"}, "needs --hosted-address"},
		"a Gateway has a namespace":                  {[]string{"--hosted-runtime=pod", "--hosted-image=i", "--hosted-expose=Gateway", "--hosted-address=https://a", "--hosted-gateway=public"}, "write namespace/name"},
		"ports of nodes":                             {[]string{"--hosted-runtime=pod", "--hosted-image=i", "--hosted-expose=NodePort", "--hosted-node-address=192.0.2.7"}, ""},
		"ports of nodes need the nodes":              {[]string{"--hosted-runtime=pod", "--hosted-image=i", "--hosted-expose=NodePort"}, "needs --hosted-node-address"},
		"an unknown exposure is refused":             {[]string{"--hosted-runtime=pod", "--hosted-image=i", "--hosted-expose=Ingress"}, "write ClusterIP, NodePort, LoadBalancer or Gateway"},
		"an unknown runtime is refused":              {[]string{"--hosted-runtime=vm"}, "write process, pod, none"},
		"an unknown log level is refused":            {[]string{"--log-level=loud"}, "write debug, info or error"},
		"no worker is refused":                       {[]string{"--pool-workers=0"}, "write 1 or more"},
		"arguments that are no flags are refused":    {[]string{"run"}, "all settings are flags"},
		"everything that is wrong is said at a time": {[]string{"--log-level=loud", "--pool-writers=-1"}, "--pool-writers=-1"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := app.ParseOptions(c.arguments)
			if c.refusal == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, c.refusal)
		})
	}
}

func TestHelpIsNoFailure(t *testing.T) {
	_, err := app.ParseOptions([]string{"-h"})
	require.ErrorIs(t, err, flag.ErrHelp)
}
