// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package ironictest starts a real Ironic on loopback for tests, with the scripts of hack/ironic.
package ironictest

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/muster-io/muster/apis/needtest"
	"github.com/muster-io/muster/apis/porttest"
	"github.com/muster-io/muster/discovery-operator/internal/ironic"
)

// Ironic is a running instance of its own, with ports and data of its own.
type Ironic struct {
	// Dir holds its configuration, data and logs.
	Dir string
	// Endpoint and Inspector are its URLs; Inspector is empty where Ironic discovers by itself.
	Endpoint, Inspector string
	env                 []string
}

// Start starts an Ironic that ends with the test. Where the packages cannot be had the test is skipped with a sentence that says
// so, or fails when CI is true.
func Start(t testing.TB, name string, env ...string) *Ironic {
	t.Helper()
	i := prepare(t, name, env...)
	i.Up(t)
	return i
}

// prepare makes room for an Ironic that ends with the test.
func prepare(t testing.TB, name string, env ...string) *Ironic {
	t.Helper()
	if testing.Short() {
		t.Skip("a real Ironic is not started in a short run")
	}
	if _, err := exec.LookPath("apt-get"); err != nil {
		needtest.Part(t, false, "a real Ironic comes from Debian packages, and there is no apt-get here")
	}
	i := &Ironic{Dir: filepath.Join(t.TempDir(), "ironic-"+name)}
	i.env = append(os.Environ(), "IRONIC_DIR="+i.Dir, "IRONIC_DRIVERS=fake-hardware,ipmi", "IRONIC_WAIT="+patience,
		"IRONIC_PORT="+porttest.Free(t), "IRONIC_INSPECTOR_PORT="+porttest.Free(t), "IRONIC_RPC_PORT="+porttest.Free(t))
	i.env = append(i.env, env...)
	t.Cleanup(func() { i.run(t, "", "down", "--purge") })
	return i
}

// Beat is how often a test asks a real Ironic whether something is so. An answer takes it a good part of a processor for tens of milliseconds.
const Beat = 300 * time.Millisecond

// patience is for how many seconds a service may start on a machine that runs many tests.
const patience = "240"

// script is one of hack/ironic, in the checkout that the test runs in.
func script(name string) string {
	dir, err := os.Getwd()
	for path := ""; err == nil && dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
		if path = filepath.Join(dir, "hack", "ironic", name); exists(path) {
			return path
		}
	}
	return filepath.Join("hack", "ironic", name)
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func (i *Ironic) run(t testing.TB, stdin, name string, args ...string) (string, bool) {
	t.Helper()
	return run(t, i.env, stdin, name, args...)
}

func run(t testing.TB, env []string, stdin, name string, args ...string) (string, bool) {
	t.Helper()
	// The context of a test has ended when its clean-up stops Ironic.
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), script(name), args...)
	var out, errs bytes.Buffer
	cmd.Env, cmd.Stdout, cmd.Stderr, cmd.Stdin = env, &out, &errs, strings.NewReader(stdin)
	if err := cmd.Run(); err != nil {
		t.Logf("%s: %v\n%s", name, err, errs.String())
		return errs.String(), false
	}
	return out.String(), true
}

// Up starts it again after Down, on the same ports and data.
func (i *Ironic) Up(t testing.TB) {
	t.Helper()
	out, ok := i.run(t, "", "up")
	if !ok {
		needtest.Part(t, false, "no real Ironic: "+strings.TrimSpace(out))
	}
	for line := range strings.Lines(out) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		switch key {
		case "IRONIC_ENDPOINT":
			i.Endpoint = value
		case "IRONIC_INSPECTOR_ENDPOINT":
			i.Inspector = value
		}
	}
}

// Down stops it and keeps the data; with purge the data go, too.
func (i *Ironic) Down(t testing.TB, purge bool) {
	t.Helper()
	args := []string{}
	if purge {
		args = append(args, "--purge")
	}
	if _, ok := i.run(t, "", "down", args...); !ok {
		t.Fatal("Ironic does not stop")
	}
}

// Enrol makes count unknown machines report, beginning with number first, and returns their nodes.
func (i *Ironic) Enrol(t testing.TB, count, first int) []string {
	t.Helper()
	return i.enrolled(t, "", strconv.Itoa(count), strconv.Itoa(first))
}

// EnrolReport makes one machine report what the test says.
func (i *Ironic) EnrolReport(t testing.TB, report []byte) string {
	t.Helper()
	return i.enrolled(t, string(report), "-")[0]
}

// Ramdisk makes a machine that Ironic inspects do what its ramdisk does: look its node up by its MACs, and post the report.
func (i *Ironic) Ramdisk(t testing.TB, report []byte) string {
	t.Helper()
	var seen struct {
		Inventory struct {
			Interfaces []struct {
				MAC string `json:"mac_address"`
			} `json:"interfaces"`
		} `json:"inventory"`
	}
	if err := json.Unmarshal(report, &seen); err != nil {
		t.Fatalf("reading the report: %v", err)
	}
	var macs []string
	for _, nic := range seen.Inventory.Interfaces {
		macs = append(macs, nic.MAC)
	}
	found := i.lookup(t, macs)
	if node := i.EnrolReport(t, report); node != found {
		t.Fatalf("the report is of node %s, the machine is node %s", node, found)
	}
	return found
}

// lookup asks which node has one of the MACs, without credentials, and again while Ironic works on the node, as a ramdisk does.
func (i *Ironic) lookup(t testing.TB, macs []string) string {
	t.Helper()
	url := strings.TrimRight(i.Endpoint, "/") + "/lookup?addresses=" + strings.Join(macs, ",")
	var answer struct {
		Node struct {
			UUID string `json:"uuid"`
		} `json:"node"`
	}
	last := ""
	for end := time.Now().Add(time.Minute); answer.Node.UUID == ""; <-time.After(200 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("looking the machine up: %s", last)
		}
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("X-OpenStack-Ironic-API-Version", "1.82")
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatalf("looking the machine up: %v", err)
		}
		if last = resp.Status; resp.StatusCode == http.StatusOK {
			err = json.NewDecoder(resp.Body).Decode(&answer)
		}
		_ = resp.Body.Close()
		if err != nil {
			t.Fatalf("looking the machine up: %v", err)
		}
	}
	return answer.Node.UUID
}

func (i *Ironic) enrolled(t testing.TB, stdin string, args ...string) []string {
	t.Helper()
	out, ok := i.run(t, stdin, "enroll", args...)
	if !ok {
		t.Fatalf("enrolling: %s", out)
	}
	var uuids []string
	for line := range strings.Lines(out) {
		if fields := strings.Fields(line); len(fields) == 3 {
			uuids = append(uuids, fields[1])
		}
	}
	return uuids
}

// Seed writes count more machines into the database of a stopped Ironic that has one.
func (i *Ironic) Seed(t testing.TB, count int) {
	t.Helper()
	if out, ok := i.run(t, "", "seed", strconv.Itoa(count)); !ok {
		t.Fatalf("seeding: %s", out)
	}
}

// Config is how to reach it.
func (i *Ironic) Config() ironic.Config {
	return ironic.Config{Endpoint: i.Endpoint, InspectorEndpoint: i.Inspector}
}

// Client asks it beside the operator.
func (i *Ironic) Client(t testing.TB) *ironic.Client {
	t.Helper()
	client, err := ironic.New(i.Config(), nil)
	if err != nil {
		t.Fatalf("making a client of Ironic: %v", err)
	}
	return client
}
