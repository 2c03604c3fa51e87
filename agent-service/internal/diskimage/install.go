// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package diskimage installs an operating system: it downloads an image, writes it to a disk, and puts into it what its first boot needs.
// It needs neither kernel drivers nor mounts.
package diskimage

import (
	"context"
	"net/http"

	"github.com/muster-io/muster/agent-service/internal/agentproto"
)

// Job is an installation.
type Job struct {
	agentproto.InstallArgs
	// FirstBoot is what the installed system is configured with.
	FirstBoot []byte
}

// Install writes the image of a job to its disk, with first-boot data and what the installer arguments say. Arguments without a meaning are refused
// before anything is written. Progress is called with the percentage that was written, up to 100.
func Install(ctx context.Context, client *http.Client, job Job, progress func(percent int)) error {
	custom, err := agentproto.ReadInstallerArgs(job.InstallerArgs)
	if err != nil {
		return err
	}
	disk, err := OpenDisk(job.Device)
	if err != nil {
		return err
	}
	err = Write(ctx, client, job.Image, disk, progress)
	if closeErr := disk.Close(); err == nil {
		err = closeErr
	}
	if err == nil && len(job.FirstBoot) > 0 {
		err = putFirstBoot(job.Device, job)
	}
	if err != nil {
		return err
	}
	return customize(job.Device, custom, connections)
}
