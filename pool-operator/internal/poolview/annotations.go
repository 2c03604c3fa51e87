// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package poolview

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	hivev1 "github.com/muster-io/muster/apis/hive/v1"
)

// booleans are the annotations whose value is a boolean.
var booleans = []string{
	hivev1.AnnotationRemoveFromPool, hivev1.AnnotationRemoveFromPoolOld, hivev1.AnnotationProtectedDelete, hivev1.AnnotationReconcilePause, hivev1.AnnotationPowerStatePause,
}

// Unreadable returns a sentence for each annotation that should be a boolean and is not, sorted.
func Unreadable(annotations map[string]string) []string {
	var out []string
	for _, key := range booleans {
		value, there := annotations[key]
		if !there {
			continue
		}
		if _, err := strconv.ParseBool(value); err != nil {
			out = append(out, fmt.Sprintf("annotation %s is %q, which is no boolean and counts as false; write \"true\" or \"false\"", key, Shorten(value)))
		}
	}
	slices.Sort(out)
	return out
}

// UnreadableNote returns what [Unreadable] tells, to be appended to the message of a condition; "" when there is nothing to tell.
func UnreadableNote(annotations map[string]string) string {
	return strings.Join(append([]string{""}, Unreadable(annotations)...), "; ")
}

// Shorten keeps a value of any length from filling a message.
func Shorten(value string) string {
	const most = 32
	if len(value) <= most {
		return value
	}
	return strings.ToValidUTF8(value[:most], "") + "…"
}
