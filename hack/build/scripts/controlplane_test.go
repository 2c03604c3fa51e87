// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package scripts

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// hack returns the path of a script below hack.
func hack(t *testing.T, name string) string {
	t.Helper()
	path, err := filepath.Abs(filepath.Join("..", "..", name))
	require.NoError(t, err)
	return path
}

// shell is a user's shell, with a cache of its own.
type shell struct {
	t     *testing.T
	cache string
	env   []string
}

func newShell(t *testing.T) *shell {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("the control plane is released for Linux only")
	}
	cache := t.TempDir()
	compiled, err := exec.CommandContext(t.Context(), "go", "env", "GOCACHE").Output()
	require.NoError(t, err)
	return &shell{t: t, cache: cache, env: []string{"XDG_CACHE_HOME=" + cache, "GOCACHE=" + strings.TrimSpace(string(compiled)), "KUBEBUILDER_ASSETS=", "CONTROLPLANE=", "TERM=dumb"}}
}

// run runs a command with more variables, and returns what it printed on standard output and standard error.
func (s *shell) run(env []string, name string, args ...string) (stdout, stderr string, err error) {
	s.t.Helper()
	cmd := exec.CommandContext(s.t.Context(), name, args...)
	cmd.Env = append(append(os.Environ(), s.env...), env...)
	var out, messages strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &messages
	err = cmd.Run()
	return out.String(), messages.String(), err
}

// cached lists the programs that were put in the user's cache, and what was left there beside them.
func (s *shell) cached() []string {
	s.t.Helper()
	var names []string
	found, err := filepath.Glob(filepath.Join(s.cache, "muster", "controlplane", "*", "*"))
	require.NoError(s.t, err)
	for _, path := range found {
		if name := filepath.Base(path); name != ".lock" {
			names = append(names, name)
		}
	}
	return names
}

// pinned returns the version of a module in hack/controlplane/go.mod.
func pinned(t *testing.T, module string) string {
	t.Helper()
	text, err := os.ReadFile(hack(t, "controlplane/go.mod"))
	require.NoError(t, err)
	for line := range strings.Lines(string(text)) {
		if fields := strings.Fields(line); len(fields) > 1 && fields[0] == module && strings.HasPrefix(fields[1], "v") {
			return fields[1]
		}
	}
	t.Fatalf("hack/controlplane/go.mod does not pin %s", module)
	return ""
}

func executable(t *testing.T, dir, name, text string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	require.NoError(t, os.WriteFile(path, []byte("#!/bin/sh\necho '"+text+"'\n"), 0o700))
	return path
}

// upstream serves releases. The path in hang is begun and never ended.
type upstream struct {
	ended chan struct{}

	mu    sync.Mutex
	files map[string][]byte
	hang  string
}

// change changes what is served.
func (u *upstream) change(change func()) {
	u.mu.Lock()
	defer u.mu.Unlock()
	change()
}

func (u *upstream) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	u.mu.Lock()
	content, ok := u.files[r.URL.Path]
	hangs := r.URL.Path == u.hang
	u.mu.Unlock()
	switch {
	case !ok:
		http.NotFound(w, r)
	case hangs:
		w.Header().Set("Content-Length", fmt.Sprint(len(content)))
		_, _ = w.Write(content[:1])
		w.(http.Flusher).Flush()
		select {
		case <-r.Context().Done():
		case <-u.ended:
		}
	default:
		_, _ = w.Write(content)
	}
}

// serve starts a server with the pinned releases and returns it with the variables that name it.
func serve(t *testing.T) (*upstream, []string) {
	t.Helper()
	u := &upstream{files: map[string][]byte{}, ended: make(chan struct{})}
	kubernetes, etcd := pinned(t, "k8s.io/kubernetes"), pinned(t, "go.etcd.io/etcd/server/v3")
	for _, name := range []string{"kube-apiserver", "kube-controller-manager", "kubectl"} {
		path := fmt.Sprintf("/k8s/%s/bin/linux/%s/%s", kubernetes, runtime.GOARCH, name)
		u.files[path] = []byte("#!/bin/sh\necho 'Kubernetes " + kubernetes + "'\n")
		u.files[path+".sha256"] = []byte(sum(u.files[path]))
	}
	archive := fmt.Sprintf("etcd-%s-linux-%s.tar.gz", etcd, runtime.GOARCH)
	u.files["/etcd/"+etcd+"/"+archive] = tarball(t, "etcd-dir/etcd", "#!/bin/sh\necho 'etcd Version: "+etcd[1:]+"'\n")
	u.files["/etcd/"+etcd+"/SHA256SUMS"] = fmt.Appendf(nil, "%s  other.tar.gz\n%s  %s\n", sum(nil), sum(u.files["/etcd/"+etcd+"/"+archive]), archive)
	server := httptest.NewServer(u)
	t.Cleanup(server.Close)
	t.Cleanup(func() { close(u.ended) })
	return u, []string{"CONTROLPLANE=download", "KUBERNETES_RELEASES=" + server.URL + "/k8s", "ETCD_RELEASES=" + server.URL + "/etcd/"}
}

func sum(content []byte) string {
	hash := sha256.Sum256(content)
	return hex.EncodeToString(hash[:])
}

func tarball(t *testing.T, name, content string) []byte {
	t.Helper()
	var out bytes.Buffer
	zipped := gzip.NewWriter(&out)
	files := tar.NewWriter(zipped)
	require.NoError(t, files.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o755, Size: int64(len(content))}))
	_, err := files.Write([]byte(content))
	require.NoError(t, err)
	require.NoError(t, files.Close())
	require.NoError(t, zipped.Close())
	return out.Bytes()
}

// serverPath is where upstream has the API server.
func serverPath(t *testing.T) string {
	t.Helper()
	return fmt.Sprintf("/k8s/%s/bin/linux/%s/kube-apiserver", pinned(t, "k8s.io/kubernetes"), runtime.GOARCH)
}

func TestReleasedProgramsAreDownloadedAndChecked(t *testing.T) {
	s := newShell(t)
	_, env := serve(t)
	stdout, stderr, err := s.run(env, hack(t, "controlplane/build"))
	require.NoError(t, err, stderr)
	dir := strings.TrimSpace(stdout)
	assert.ElementsMatch(t, []string{"etcd", "kube-apiserver", "kube-controller-manager"}, s.cached(), "kubectl is made only if it is asked for")
	for name, version := range map[string]string{"etcd": "etcd Version: ", "kube-apiserver": "Kubernetes v"} {
		text, _, err := s.run(nil, filepath.Join(dir, name), "--version")
		require.NoError(t, err)
		assert.Contains(t, text, version)
	}
	assert.Contains(t, stderr, "its SHA-256 sum is right")

	_, stderr, err = s.run([]string{"CONTROLPLANE=download", "KUBERNETES_RELEASES=http://127.0.0.1:1"}, hack(t, "controlplane/build"))
	require.NoError(t, err)
	assert.Empty(t, stderr, "existing programs are not downloaded again")
}

func TestAProgramWithAnotherSumIsNotInstalled(t *testing.T) {
	s := newShell(t)
	u, env := serve(t)
	wrong := []byte("#!/bin/sh\necho 'I am another program'\n")
	u.change(func() { u.files[serverPath(t)] = wrong })
	_, stderr, err := s.run(env, hack(t, "controlplane/build"))
	require.Error(t, err)
	assert.Contains(t, stderr, "kube-apiserver has the SHA-256 sum "+sum(wrong)+", and ")
	assert.Contains(t, stderr, "leave CONTROLPLANE empty to build the control plane from source")
	assert.Empty(t, s.cached(), "files of a failed download are not used")
}

func TestAnArchiveOfEtcdWithAnotherSumIsNotInstalled(t *testing.T) {
	s := newShell(t)
	u, env := serve(t)
	etcd := pinned(t, "go.etcd.io/etcd/server/v3")
	wrong := tarball(t, "etcd-dir/etcd", "another program")
	u.change(func() {
		u.files["/etcd/"+etcd+"/"+fmt.Sprintf("etcd-%s-linux-%s.tar.gz", etcd, runtime.GOARCH)] = wrong
	})
	_, stderr, err := s.run(env, hack(t, "controlplane/build"), "etcd")
	require.Error(t, err)
	assert.Contains(t, stderr, "it was not installed")
	assert.Empty(t, s.cached())
}

func TestAServerThatHangsIsGivenUp(t *testing.T) {
	s := newShell(t)
	u, env := serve(t)
	u.change(func() { u.hang = serverPath(t) })
	_, stderr, err := s.run(append(env, "DOWNLOAD_IDLE=300ms"), hack(t, "controlplane/build"))
	require.Error(t, err)
	assert.Contains(t, stderr, "the server sent nothing for 300ms")
	assert.Empty(t, s.cached())
}

func TestAReleaseThatIsNotThereIsNamed(t *testing.T) {
	s := newShell(t)
	u, env := serve(t)
	u.change(func() { delete(u.files, serverPath(t)) })
	_, stderr, err := s.run(env, hack(t, "controlplane/build"))
	require.Error(t, err)
	assert.Contains(t, stderr, serverPath(t)+": 404 Not Found")
}

// KUBEBUILDER_ASSETS is used as it is; programs on the PATH only if they are of the pinned minor.
func TestProgramsOfTheUserAreUsed(t *testing.T) {
	s := newShell(t)
	kubernetes, etcd := pinned(t, "k8s.io/kubernetes"), pinned(t, "go.etcd.io/etcd/server/v3")
	assets, onPath := t.TempDir(), t.TempDir()
	server := executable(t, assets, "kube-apiserver", "Kubernetes v1.2.3")
	manager := executable(t, onPath, "kube-controller-manager", "Kubernetes "+kubernetes[:strings.LastIndex(kubernetes, ".")]+".99")
	store := executable(t, onPath, "etcd", "etcd Version: "+etcd[1:])
	user := []string{"KUBEBUILDER_ASSETS=" + assets, "PATH=" + onPath + ":" + os.Getenv("PATH")}
	stdout, stderr, err := s.run(user, hack(t, "controlplane/build"))
	require.NoError(t, err, stderr)
	assert.Equal(t, 1, strings.Count(stdout, "\n"), "one line: the directory")
	for _, path := range []string{server, manager, store} {
		assert.Contains(t, stderr, "using "+path+" (v")
	}
	assert.Empty(t, s.cached(), "no program was built")

	// One program is of another minor, so it alone is made.
	executable(t, onPath, "kube-controller-manager", "Kubernetes v1.20.0")
	_, env := serve(t)
	_, stderr, err = s.run(append(env, user...), hack(t, "controlplane/build"))
	require.NoError(t, err, stderr)
	assert.Equal(t, []string{"kube-controller-manager"}, s.cached())
	assert.Contains(t, stderr, "using "+store)
}

func TestAWrongWordIsRefused(t *testing.T) {
	s := newShell(t)
	_, stderr, err := s.run([]string{"CONTROLPLANE=fetch"}, hack(t, "controlplane/build"))
	require.Error(t, err)
	assert.Contains(t, stderr, `CONTROLPLANE is "fetch"`)
	_, stderr, err = s.run(nil, hack(t, "controlplane/build"), "kubelet")
	require.Error(t, err)
	assert.Contains(t, stderr, "usage:")
}

// The program that starts control planes looks where the script puts them.
func TestTheKeyIsThatOfTheOperator(t *testing.T) {
	s := newShell(t)
	stdout, _, err := s.run(nil, hack(t, "controlplane/build"), "--key")
	require.NoError(t, err)
	source, err := os.ReadFile(hack(t, "../pool-operator/internal/controlplane/binaries.go"))
	require.NoError(t, err)
	parts := strings.Split(strings.TrimSpace(stdout), "-")
	assert.Contains(t, string(source), `"`+parts[0]+`"`, "the version of Kubernetes")
	assert.Contains(t, string(source), `"`+parts[len(parts)-1]+`"`, "the hash of go.sum")
}
