// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/muster-io/muster/apis/controlplanetest"
	"github.com/muster-io/muster/apis/logging"
)

// Environment of a test binary that is to be a replica of the operator.
const (
	envSeed       = "IPAM_TEST_REPLICA_SEED"
	envNamespace  = "IPAM_TEST_REPLICA_NAMESPACE"
	envKubeconfig = "IPAM_TEST_REPLICA_KUBECONFIG"
)

// TestMain lets this program be an operator of its own, which can be killed.
func TestMain(m *testing.M) {
	seed, err := strconv.ParseUint(os.Getenv(envSeed), 10, 64)
	if err != nil {
		if _, err := logging.New("error"); err != nil { // before the tests, which run beside each other
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(m.Run())
	}
	if err := beReplica(seed); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// beReplica runs the operator with bad luck until it is killed or the test that started it has ended.
func beReplica(seed uint64) error {
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv(envKubeconfig))
	if err != nil {
		return err
	}
	config.QPS = -1
	config.Impersonate = asOperator
	config.Wrap(newFaults(seed).wrap)
	options := testOptions(os.Getenv(envNamespace))
	options.LogLevel = "info" // it is shown when the test fails
	if _, err := logging.New(options.LogLevel); err != nil {
		return err
	}
	return RunWith(ctrl.SetupSignalHandler(), options, config)
}

// asOperator are the rights that deploy/base/ipam-operator gives.
var asOperator = rest.ImpersonationConfig{
	UserName: account, Groups: []string{"system:serviceaccounts", "system:serviceaccounts:muster-ipam-operator", "system:authenticated"},
}

// replica starts the operator as a process. Its end is a kill -9.
func (w *site) replica(seed uint64) (kill func()) {
	w.t.Helper()
	program, err := os.Executable()
	require.NoError(w.t, err)
	log, err := os.Create(filepath.Join(w.t.TempDir(), "log"))
	require.NoError(w.t, err)
	w.replicaLogs = append(w.replicaLogs, log.Name())
	cmd := exec.CommandContext(w.t.Context(), program)
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d", envSeed, seed), envNamespace+"="+w.namespace, envKubeconfig+"="+controlplanetest.Kubeconfig(w.t))
	cmd.Stdout, cmd.Stderr = log, log
	_, err = cmd.StdinPipe() // it ends with this program, however that ends
	require.NoError(w.t, err)
	require.NoError(w.t, cmd.Start())
	killed := false
	kill = func() {
		if killed {
			return
		}
		killed = true
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		text, err := os.ReadFile(log.Name())
		if assert.NoError(w.t, err) {
			assert.NotContains(w.t, string(text), "DATA RACE")
			assert.NotContains(w.t, string(text), "panic")
		}
		_ = log.Close()
	}
	w.t.Cleanup(kill)
	return kill
}

// ofARace are the names of the claims of a race.
var ofARace = regexp.MustCompile(`\bu\d+-\d+\b`)

// logReplicas logs the end of what each replica said, and what all of them said of the claims that a text names, in the order of time.
func (w *site) logReplicas(about string) {
	var lines []string
	claims := ofARace.FindAllString(about, -1)
	for i, path := range w.replicaLogs {
		content, err := os.ReadFile(path)
		if err != nil {
			w.t.Log(err)
			continue
		}
		lines := strings.Split(strings.TrimSpace(string(content)), "\n")
		w.t.Logf("replica %d ends with: %s", i, strings.Join(lines[max(0, len(lines)-3):], "\n"))
		for _, line := range lines {
			if slices.ContainsFunc(claims, func(claim string) bool { return strings.Contains(line, `"`+claim+`"`) }) {
				lines = append(lines, fmt.Sprintf("%s of replica %d", line, i))
			}
		}
	}
	at := regexp.MustCompile(`"ts":"[^"]*"`)
	slices.SortStableFunc(lines, func(a, b string) int { return strings.Compare(at.FindString(a), at.FindString(b)) })
	w.t.Log(strings.Join(lines[max(0, len(lines)-200):], "\n"))
}
