// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/muster-io/muster/agent-service/internal/hardware"
)

// mostMemory is what the process may take at most while it is sent more than it can take: the deployment has 1 GiB.
const mostMemory = 700 << 20

// TestLargeRepliesAreBoundedByMemory sends many large replies at once with one token to a service in a process of its own, and measures the memory of that.
func TestLargeRepliesAreBoundedByMemory(t *testing.T) {
	p := startProcess(t, "")
	env := p.post("/infra-envs", "", map[string]any{"name": "e", "pull_secret": `{"auths":{}}`}, http.StatusCreated)["id"].(string)
	register := func() (path, token string) {
		id := uuid.NewString()
		host := p.post("/infra-envs/"+env+"/hosts", "", map[string]any{"host_id": id, "boot_id": "1"}, http.StatusCreated)
		return "/infra-envs/" + env + "/hosts/" + id + "/instructions", host["token"].(string)
	}
	path, token := register()
	large := reply(t, 19_000)
	require.Greater(t, len(large), 6_000_000)

	var wait sync.WaitGroup
	var taken, refused atomic.Int64
	for range 40 {
		wait.Go(func() {
			status, header := p.sendLarge(path, token, large)
			switch status {
			case http.StatusNoContent:
				taken.Add(1)
			case http.StatusTooManyRequests, http.StatusServiceUnavailable:
				refused.Add(1)
				assert.NotEmpty(t, header.Get("Retry-After"))
			case cutOff:
				refused.Add(1)
			default:
				assert.Fail(t, "a large reply", "is answered with %d", status)
			}
		})
	}
	for range 20 { // other machines go on
		wait.Go(func() {
			path, token := register()
			status, _ := p.send(path, token, reply(t, 1))
			assert.Equal(t, http.StatusNoContent, status)
		})
	}
	wait.Go(func() { // and so do their large replies
		path, token := register()
		assert.Eventually(t, func() bool {
			status, _ := p.sendLarge(path, token, large)
			return status == http.StatusNoContent
		}, patience, 100*time.Millisecond)
	})
	wait.Wait()
	assert.Positive(t, taken.Load())
	assert.Positive(t, refused.Load())
	most := p.mostMemory()
	t.Logf("%d taken, %d refused, at most %d MiB", taken.Load(), refused.Load(), most>>20)
	assert.Less(t, most, mostMemory)
	status, _ := p.send(path, token, large)
	assert.Equal(t, http.StatusNoContent, status, "a refused request is accepted later")
}

// TestManyLargeRepliesAreBoundedByMemory is the same from many machines.
func TestManyLargeRepliesAreBoundedByMemory(t *testing.T) {
	p := startProcess(t, "")
	env := p.post("/infra-envs", "", map[string]any{"name": "e", "pull_secret": `{"auths":{}}`}, http.StatusCreated)["id"].(string)
	large := reply(t, 19_000)
	var wait sync.WaitGroup
	for range 40 {
		wait.Go(func() {
			id := uuid.NewString()
			host := p.post("/infra-envs/"+env+"/hosts", "", map[string]any{"host_id": id, "boot_id": "1"}, http.StatusCreated)
			assert.Eventually(t, func() bool {
				status, _ := p.sendLarge("/infra-envs/"+env+"/hosts/"+id+"/instructions", host["token"].(string), large)
				return status == http.StatusNoContent
			}, patience, 100*time.Millisecond)
		})
	}
	wait.Wait()
	most := p.mostMemory()
	t.Logf("at most %d MiB", most>>20)
	assert.Less(t, most, mostMemory)
}

// TestAnswersWithLargeInventoriesAreBoundedByMemory: what a list of hosts, or a cluster with its hosts, needs does not grow with their inventories.
func TestAnswersWithLargeInventoriesAreBoundedByMemory(t *testing.T) {
	p := startProcess(t, "")
	cluster := p.post("/clusters", "", map[string]any{"name": "c", "openshift_version": "4.18", "pull_secret": `{"auths":{}}`}, http.StatusCreated)["id"].(string)
	env := p.post("/infra-envs", "", map[string]any{"name": "e", "pull_secret": `{"auths":{}}`, "cluster_id": cluster}, http.StatusCreated)["id"].(string)
	report := reply(t, 1_300)
	for range 120 {
		id := uuid.NewString()
		host := p.post("/infra-envs/"+env+"/hosts", "", map[string]any{"host_id": id, "boot_id": "1"}, http.StatusCreated)
		status, _ := p.send("/infra-envs/"+env+"/hosts/"+id+"/instructions", host["token"].(string), report)
		require.Equal(t, http.StatusNoContent, status)
	}
	for _, one := range []struct {
		method, path, body string
		want               int
	}{
		{http.MethodGet, "/infra-envs/" + env + "/hosts", "", http.StatusOK},
		{http.MethodPatch, "/clusters/" + cluster, `{"base_dns_domain":"example.org"}`, http.StatusCreated},
	} {
		before := p.mostMemory()
		var wait sync.WaitGroup
		for range 8 {
			wait.Go(func() {
				status, _, err := p.request(one.method, one.path, "", strings.NewReader(one.body), nil)
				assert.Equal(t, one.want, status, "%v", err)
			})
		}
		wait.Wait()
		most := p.mostMemory()
		t.Logf("%s: at most %d MiB, %d MiB before", one.method, most>>20, before>>20)
		assert.Less(t, most, mostMemory, one.method)
	}
}

// cutOff is the status of a request that was refused before all of it was sent, and whose connection ended before the answer could be read.
const cutOff = 0

// sendLarge sends what may be refused before all of it is sent.
func (p *process) sendLarge(path, token string, body []byte) (status int, header http.Header) {
	status, header, err := p.request(http.MethodPost, path, token, bytes.NewReader(body), nil)
	if err != nil && !errors.Is(err, syscall.EPIPE) && !errors.Is(err, syscall.ECONNRESET) && !errors.Is(err, net.ErrClosed) {
		p.t.Error(err)
	}
	return status, header
}

// reply is an inventory with so many disks.
func reply(t *testing.T, disks int) []byte {
	t.Helper()
	inventory := hardware.Inventory{Hostname: "h", CPU: hardware.CPU{Architecture: "x86_64", Count: 8}, Memory: hardware.Memory{PhysicalBytes: 64 << 30}}
	for i := range disks {
		id := fmt.Sprintf("/dev/disk/by-id/wwn-0x5000c500a0b1%08d", i)
		inventory.Disks = append(inventory.Disks, hardware.Disk{
			Name: fmt.Sprintf("sd%d", i), ID: id, ByID: id, Path: fmt.Sprintf("/dev/sd%d", i), Serial: fmt.Sprintf("%016d", i), WWN: fmt.Sprintf("0x5000c500a0b1%08d", i),
			SizeBytes: 480e9, DriveType: "SSD", InstallationEligibility: hardware.Eligibility{Eligible: true},
		})
	}
	output, err := json.Marshal(inventory)
	require.NoError(t, err)
	body, err := json.Marshal(map[string]any{"step_type": "inventory", "step_id": "inventory-1", "exit_code": 0, "output": string(output)})
	require.NoError(t, err)
	return body
}
