// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package hostplan

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/muster-io/muster/agent-service/internal/agentproto"
	"github.com/muster-io/muster/agent-service/internal/domain"
	"github.com/muster-io/muster/agent-service/internal/hardware"
	"github.com/muster-io/muster/agent-service/internal/lifecycle"
)

// Settle ends the release of a host that runs the discovery image again, that its cluster is rid of, and whose disks are wiped. Until then it says what keeps the disks
// from being wiped.
func (p *Plan) Settle(h *domain.Host) {
	if !h.Release.Underway() || h.Release.Stopping || !lifecycle.Free(h.State) {
		return
	}
	if !h.Release.Wiped() {
		if obstacle := obstacle(h); obstacle != "" {
			p.failWipe(h, obstacle)
		}
		return
	}
	if !h.Release.Left() {
		return
	}
	h.Release.EndedAt = p.Now
	p.Tell(h, "", domain.Info, "host_released", true, "Host %s: it is free again", h.FreeLabel())
}

// obstacle is why the agent of a host is not asked to wipe.
func obstacle(h *domain.Host) string {
	if h.Assisted() {
		return "agent " + h.AgentVersion + " does not wipe disks: boot a discovery image of this service"
	}
	if h.Summary.Hash == "" {
		return "" // it may have disks that were not reported yet
	}
	_, refusal := h.ToWipe()
	return refusal
}

func (p *Plan) failWipe(h *domain.Host, why string) {
	why = domain.Truncate(domain.WithoutSecrets(why), 1000)
	if h.Release.WipeFailure == why {
		return
	}
	h.Release.WipeFailure = why
	p.Tell(h, "", domain.Failure, "host_wipe_failed", true, "Host %s: it could not be wiped, and is not given to any cluster: %s", h.FreeLabel(), why)
}

// wipeArguments are those of a wipe-disk step; wanted is false where there is nothing to wipe, or not all is known of it.
func wipeArguments(h *domain.Host) (arguments []string, wanted bool) {
	if !h.Release.Underway() || h.Release.Stopping || h.Release.Wiped() || h.Assisted() || h.Release.Wipe == domain.WipeAllDisks && h.Summary.Hash == "" {
		return nil, false
	}
	disks, refusal := h.ToWipe()
	if refusal != "" {
		return nil, false
	}
	var args agentproto.WipeArgs
	for _, disk := range disks {
		args.Disks = append(args.Disks, agentproto.DiskIdentity(disk))
	}
	return []string{agentproto.Argument(args)}, true
}

// aboutWipe is the same as long as the same disks are to be wiped for the same release.
func aboutWipe(h *domain.Host) string {
	about := []string{"wipe", h.Release.StartedAt.UTC().Format(time.RFC3339Nano)}
	disks, _ := h.ToWipe()
	for _, disk := range disks {
		about = append(about, fmt.Sprint(disk))
	}
	return strings.Join(about, "|")
}

// TakeWipe keeps what a reply to a wipe-disk step says. Disks count as wiped only if the agent names every one.
func (p *Plan) TakeWipe(h *domain.Host, reply agentproto.StepReply) {
	if !h.Release.Underway() || h.Release.Wiped() || !lifecycle.Free(h.State) || reply.ID != StepID(h.HostKey, agentproto.StepWipeDisk, aboutWipe(h)) {
		return // of another release, or of other disks
	}
	var said agentproto.WipeReply
	if reply.ExitCode != 0 || json.Unmarshal([]byte(reply.Output), &said) != nil {
		p.failWipe(h, cmp.Or(reply.Error, reply.Output, "the agent does not say why"))
		return
	}
	disks, _ := h.ToWipe()
	names := make([]string, 0, len(disks))
	for _, disk := range disks {
		if !slices.ContainsFunc(said.Disks, func(w agentproto.DiskIdentity) bool { return hardware.DiskIdentity(w).Is(disk) }) {
			p.failWipe(h, "the agent does not say that it wiped the "+disk.String())
			return
		}
		names = append(names, disk.String())
	}
	h.Release.WipedAt, h.Release.WipeFailure, h.Written = p.Now, "", nil
	p.Tell(h, "", domain.Info, "host_wiped", true, "Host %s: wiped %s", h.FreeLabel(), domain.Truncate(strings.Join(names, ", "), 1000))
}
