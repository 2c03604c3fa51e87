// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package logging_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/muster-io/muster/apis/logging"
)

// asProgram names the level at which this program logs as one of ours, instead of running tests.
const asProgram = "LOGGING_TEST_LEVEL"

func TestMain(m *testing.M) {
	level := os.Getenv(asProgram)
	if level == "" {
		os.Exit(m.Run())
	}
	log, err := logging.New(level)
	if err != nil {
		logging.Ended("test", err)
		os.Exit(1)
	}
	log.Debug("details")
	log.Info("done")
	away := errors.New("connection refused")
	ctrl.Log.Error(away, "Reconciler error")
	klog.ErrorS(away, "watching")
	klog.Infof("classic %s", "text")
	log.DPanic("a bug")
	logging.Ended("test", errors.New("leader election lost\nafter a time"))
	os.Exit(1)
}

// lines are what a program with a log level prints.
func lines(t *testing.T, level string) []map[string]any {
	t.Helper()
	program, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), program)
	cmd.Env = append(cmd.Environ(), asProgram+"="+level)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	require.Error(t, cmd.Run())
	var out []map[string]any
	for scanner := bufio.NewScanner(strings.NewReader(stderr.String())); scanner.Scan(); {
		line := map[string]any{}
		require.NoError(t, json.Unmarshal(scanner.Bytes(), &line), scanner.Text())
		out = append(out, line)
	}
	return out
}

func messages(lines []map[string]any) []string {
	var out []string
	for _, line := range lines {
		message, _ := line["msg"].(string)
		out = append(out, strings.TrimSpace(message))
	}
	return out
}

func TestAllLinesAreJSON(t *testing.T) {
	found := lines(t, "info")
	assert.Equal(t, []string{"done", "Reconciler error", "watching", "classic text", "a bug", "ended"}, messages(found))
	for _, line := range found {
		at, _ := line["ts"].(string)
		_, err := time.Parse(time.RFC3339Nano, at)
		require.NoError(t, err, line)
		assert.Equal(t, line["msg"] == "a bug", line["stacktrace"] != nil, "%v", line)
	}
	assert.Equal(t, "connection refused", found[1]["error"])
	assert.Equal(t, "leader election lost\nafter a time", found[5]["error"])
}

func TestLevels(t *testing.T) {
	assert.Contains(t, messages(lines(t, "debug")), "details")
	assert.NotContains(t, messages(lines(t, "error")), "done")
	refused := lines(t, "loud")
	require.Len(t, refused, 1)
	assert.Contains(t, refused[0]["error"], "reading the log level")
}
