// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"errors"
	"io"
	"math"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/muster-io/muster/agent-service/internal/domain"
)

const (
	// bootOrderPath is where machines that boot from the network first ask what to boot. The path goes on with what stands in the addresses of images.
	bootOrderPath = "/boot-order/"
	// bootOrderControl is the type of scripts that send a machine there.
	bootOrderControl = "boot-order-control"
	// discoveryImageAlways is the type of scripts that boot the discovery image, whatever the machine is.
	discoveryImageAlways = "discovery-image-always"
	// bootOrderSpec is the same as the spec of an InfraEnv writes it.
	bootOrderSpec = "BootOrderControl"
	// bootDisk lets the firmware go on with its next device.
	bootDisk = "#!ipxe\nexit 1\n"
)

// scriptURL is the address of an iPXE script.
func (d *discovery) scriptURL(short, scriptType string) string {
	if scriptType == bootOrderControl {
		return d.base + bootOrderPath + short + "/ipxe-script"
	}
	return d.images + "/images/" + short + "/ipxe-script"
}

// scriptType is that of an InfraEnv whose spec is a custom resource.
func scriptType(env *domain.InfraEnv) string {
	if env.IPXEScriptType == bootOrderSpec {
		return bootOrderControl
	}
	return ""
}

// askAgain sends a machine back with the MAC of the interface that it booted from, which iPXE puts into the address.
func (d *discovery) askAgain(short string) string {
	return "#!ipxe\nchain " + d.scriptURL(short, bootOrderControl) + "?mac=${netX/mac}\n"
}

// bootOrder is what a machine with this MAC boots: its disk, or, as one that is not known, the discovery image. Unavailable where the service cannot know.
func (d *discovery) bootOrder(ctx context.Context, infraEnvID, short, mac string) (string, error) {
	if address, err := net.ParseMAC(mac); err == nil {
		disk, err := d.envs.BootsFromDisk(ctx, infraEnvID, address.String())
		if err != nil {
			return "", err
		}
		if disk {
			return bootDisk, nil
		}
	}
	return "#!ipxe\nchain " + d.scriptURL(short, "") + "\n", nil
}

// serveBootOrder answers a machine. iPXE runs no script that comes with a status other than 200: chain fails, the script that called it ends with an error, and the
// firmware goes on with its next boot device, which is the disk of an installed machine. So where the service cannot know what the machine is, it says so and
// names no image: an installed system is not brought down, and a machine without one is booted again by its user, or by its firmware.
func (d *discovery) serveBootOrder(w http.ResponseWriter, r *http.Request) {
	key := r.PathValue("key")
	scope, err := d.authority.VerifyShort(r.Context(), key)
	switch {
	case domain.KindOf(err) == domain.Unavailable:
		tryLater(w, err)
		return
	case err != nil:
		http.Error(w, "this address opens nothing: ask for the script's address again", http.StatusNotFound)
		return
	}
	script := d.askAgain(key)
	if query := r.URL.Query(); query.Has("mac") {
		if script, err = d.bootOrder(r.Context(), scope.InfraEnvID, key, query.Get("mac")); err != nil {
			tryLater(w, err)
			return
		}
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	_, _ = io.WriteString(w, script) //nolint:gosec // it is plain text, and of the MAC only whether a host has it
}

// retryAfter is for errors that do not say when to try again.
const retryAfter = 5 * time.Second

// tryLater answers where the service cannot know.
func tryLater(w http.ResponseWriter, err error) {
	pause := retryAfter
	if said, is := errors.AsType[*domain.Error](err); is && said.RetryAfter > 0 {
		pause = said.RetryAfter
	}
	w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(pause.Seconds()))))
	http.Error(w, "the service cannot answer at the moment", http.StatusServiceUnavailable)
}
