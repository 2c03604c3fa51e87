// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package conditionevent

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"k8s.io/client-go/tools/events"
)

func TestChangedConditionsBecomeEvents(t *testing.T) {
	rules := []Rule{
		{Condition: "Image", Action: "Make", Normal: []string{"Ready"}, Warning: []string{"Broken"}},
		{Condition: "Connected", Action: "Listen", Normal: []string{"Heard"}, Later: true},
	}
	for name, one := range map[string]struct {
		before, after []Condition
		want          []string
	}{
		"a success becomes one event": {
			[]Condition{{"Image", "Ready", "one"}}, []Condition{{"Image", "Ready", "two"}}, nil,
		},
		"also at first": {nil, []Condition{{"Image", "Ready", "It is ready"}}, []string{"Normal Ready It is ready"}},
		"a warning is told again when it says something else": {
			[]Condition{{"Image", "Broken", "one"}}, []Condition{{"Image", "Broken", "two"}}, []string{"Warning Broken two"},
		},
		"and not when it does not":         {[]Condition{{"Image", "Broken", "one"}}, []Condition{{"Image", "Broken", "one"}}, nil},
		"the first state becomes no event": {nil, []Condition{{"Connected", "Heard", "It is there"}}, nil},
		"but when it comes back": {
			[]Condition{{"Connected", "Silent", "It is not"}}, []Condition{{"Connected", "Heard", "It is there"}}, []string{"Normal Heard It is there"},
		},
		"other reasons and conditions are no outcomes": {nil, []Condition{{"Image", "Coming", ""}, {"Other", "Ready", ""}}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			recorder := events.NewFakeRecorder(10)
			Publish(recorder, nil, nil, rules, one.before, one.after)
			close(recorder.Events)
			var published []string
			for event := range recorder.Events {
				published = append(published, event)
			}
			assert.Equal(t, one.want, published)
		})
	}
}
