// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestLogTailSaysWhatWentWrongWithoutSecrets(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	require.NoError(t, os.WriteFile(path, []byte(strings.Join([]string{
		`I1121 02:10:24.699384    4390 options.go:1] started`,
		`E1121 02:10:24.699384    4390 auth.go:2] refused Authorization: Bearer abcdefghijklmnop`,
		`F1121 02:10:25.699384    4390 x.go:3] "cannot open token=abcdefghijklmnop: denied"`,
		`I1121 02:10:26.699384    4390 options.go:4] bye`,
	}, "\n")), 0o600))
	tail := logTail(path)
	require.Len(t, tail, 2)
	assert.NotContains(t, strings.Join(tail, " "), "abcdefgh")
	assert.Equal(t, "cannot open token=[redacted]: denied", essence(tail[1]))
}

func TestEssenceIsStable(t *testing.T) {
	for line, want := range map[string]string{
		`{"level":"fatal","ts":"2026-11-21T01:54:47Z","msg":"discovery failed","error":"no room"}`: "discovery failed: no room",
		`Error: unknown flag: --x`:                    "unknown flag: --x",
		`2026/11/21 02:10:24 WARNING: something`:      "WARNING: something",
		`E1121 02:10:24.6 4390 a.go:1] failed to run`: "failed to run",
		strings.Repeat("x", 2*maxEssence):             strings.Repeat("x", maxEssence) + "…",
	} {
		assert.Equal(t, want, essence(line))
	}
}

func TestLogIsBoundedAndNeverFails(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	log, err := openLog(path)
	require.NoError(t, err)
	chunk := []byte(strings.Repeat("x", 1<<20))
	for range 20 {
		n, err := log.Write(chunk)
		require.NoError(t, err)
		require.Equal(t, len(chunk), n)
	}
	for _, name := range []string{path, path + ".previous"} {
		info, err := os.Stat(name)
		require.NoError(t, err)
		assert.LessOrEqual(t, info.Size(), int64(maxLogSize+2*len(chunk)))
	}
	log.close()
	n, err := log.Write(chunk)
	require.NoError(t, err)
	assert.Equal(t, len(chunk), n)
}

func TestErrorsAreOneSentence(t *testing.T) {
	for want, err := range map[string]error{
		"etcd died (exit status 1): no room":                      &ProcessDiedError{Process: "etcd", State: "exit status 1", LogTail: []string{"no room"}},
		"etcd died (signal: killed)":                              &ProcessDiedError{Process: "etcd", State: "signal: killed", LogTail: []string{"unrelated"}},
		"port taken: another program listens on 127.0.0.1:1":      &PortTakenError{Address: "127.0.0.1:1"},
		"disk full: no space left for /d":                         &DiskFullError{Dir: "/d"},
		"/d is in use by process 7":                               &InUseError{Dir: "/d", PID: 7},
		"no free port between 1 and 2":                            &NoFreePortError{Range: PortRange{First: 1, Last: 2}},
		"the API server was not ready after 1s: etcd is not well": &NotReadyError{Waited: "1s", Last: "etcd is not well"},
	} {
		assert.EqualError(t, err, want)
	}
}

// TestALogGoesOnWhereItsFileCouldNotBeMade has no room for a new file when the log is set aside, and has it again later.
func TestALogGoesOnWhereItsFileCouldNotBeMade(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "log")
	require.NoError(t, os.Mkdir(dir, 0o700))
	path := filepath.Join(dir, "etcd.log")
	log, err := openLog(path)
	require.NoError(t, err)
	require.NoError(t, os.RemoveAll(dir))
	write := func(text string) {
		_, err := log.Write([]byte(text))
		require.NoError(t, err)
	}
	write(strings.Repeat("x", maxLogSize+1))
	write("lost\n")
	require.NoError(t, os.Mkdir(dir, 0o700))
	write("there is room again\n")
	write("and more\n")
	content, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.Equal(t, "there is room again\nand more\n", string(content))
	log.close()
	write("after the end\n")
	content, err = os.ReadFile(path)
	require.NoError(t, err)
	assert.Equal(t, "there is room again\nand more\n", string(content))
}
