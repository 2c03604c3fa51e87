// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestWhichHostsBootTheirDisk(t *testing.T) {
	for name, test := range map[string]struct {
		state State
		stage Stage
		want  bool
	}{
		"free":                              {KnownUnbound, "", false},
		"its disk is written":               {InstallingInProgress, StageWriting, false},
		"it restarts":                       {InstallingInProgress, StageRebooting, true},
		"it waits for its user after that":  {InstallingPendingUserAction, StageRebooting, true},
		"it configures itself":              {InstallingInProgress, StageConfiguring, true},
		"it is installed":                   {Installed, StageDone, true},
		"it is a node":                      {AddedToExistingCluster, StageDone, true},
		"its installation failed":           {Failed, StageRebooting, false},
		"it is released":                    {Unbinding, StageDone, false},
		"it is released by its user's hand": {UnbindingPendingUserAction, StageDone, false},
		"it restarts into the image":        {ReclaimingRebooting, StageDone, false},
	} {
		assert.Equal(t, test.want, BootsFromDisk(test.state, test.stage), name)
	}
}
