// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package v1_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	hivev1 "github.com/muster-io/muster/apis/hive/v1"
)

var (
	early = metav1.NewTime(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
	late  = metav1.NewTime(early.Add(time.Hour))
)

func TestSetCondition(t *testing.T) {
	start := hivev1.Condition{Type: "Ready", Status: corev1.ConditionFalse, Reason: "Filling", Message: "1 of 2", LastProbeTime: early, LastTransitionTime: early}
	tests := map[string]struct {
		set     hivev1.Condition
		changed bool
		want    hivev1.Condition
	}{
		"an equal condition changes no field, not even the time of the probe": {
			set:  hivev1.Condition{Type: "Ready", Status: corev1.ConditionFalse, Reason: "Filling", Message: "1 of 2"},
			want: start,
		},
		"a new message keeps the time of the transition": {
			set:     hivev1.Condition{Type: "Ready", Status: corev1.ConditionFalse, Reason: "Filling", Message: "0 of 2"},
			changed: true,
			want:    hivev1.Condition{Type: "Ready", Status: corev1.ConditionFalse, Reason: "Filling", Message: "0 of 2", LastProbeTime: late, LastTransitionTime: early},
		},
		"a new status is a transition": {
			set:     hivev1.Condition{Type: "Ready", Status: corev1.ConditionTrue, Reason: "Filled"},
			changed: true,
			want:    hivev1.Condition{Type: "Ready", Status: corev1.ConditionTrue, Reason: "Filled", LastProbeTime: late, LastTransitionTime: late},
		},
	}
	for sentence, test := range tests {
		t.Run(sentence, func(t *testing.T) {
			conditions := []hivev1.Condition{{Type: "Other"}, start}
			assert.Equal(t, test.changed, hivev1.SetCondition(&conditions, test.set, late))
			assert.Equal(t, []hivev1.Condition{{Type: "Other"}, test.want}, conditions)
		})
	}
}

// One that is too long would be refused, and with it the status.
func TestTextsAreCutToWhatTheSchemaTakes(t *testing.T) {
	var conditions []hivev1.Condition
	long := hivev1.Condition{Type: "Ready", Status: corev1.ConditionFalse, Reason: strings.Repeat("R", 2000), Message: strings.Repeat("é", 20000)}
	assert.True(t, hivev1.SetCondition(&conditions, long, early))
	assert.Len(t, conditions[0].Reason, 1024)
	assert.Equal(t, strings.Repeat("é", 16384), conditions[0].Message)
	long.Message = "x" + long.Message
	assert.True(t, hivev1.SetCondition(&conditions, long, late))
	assert.Equal(t, "x"+strings.Repeat("é", 16383), conditions[0].Message, "no character is cut in two")
	assert.False(t, hivev1.SetCondition(&conditions, long, late), "what was cut says nothing new")
}

func TestANewConditionIsAppended(t *testing.T) {
	var conditions []hivev1.Condition
	assert.True(t, hivev1.SetCondition(&conditions, hivev1.Condition{Type: "Ready", Status: corev1.ConditionTrue}, early))
	assert.True(t, hivev1.IsConditionTrue(conditions, "Ready"))
	assert.False(t, hivev1.IsConditionTrue(conditions, "Hibernating"))
	assert.Nil(t, hivev1.FindCondition(conditions, "Hibernating"))
}

// A time that is not set is left out, since a null is refused.
func TestEmptyTimesAreLeftOut(t *testing.T) {
	data, err := json.Marshal(hivev1.Condition{Type: "Ready", Status: corev1.ConditionTrue})
	require.NoError(t, err)
	assert.JSONEq(t, `{"type":"Ready","status":"True"}`, string(data))
}

func TestNameOfThePlatformThatIsSet(t *testing.T) {
	raw := &runtime.RawExtension{Raw: []byte(`{}`)}
	for want, platform := range map[string]hivev1.Platform{
		"":                            {},
		hivev1.PlatformHosted:         {Hosted: &hivev1.HostedPlatform{}},
		hivev1.PlatformAgentBareMetal: {AgentBareMetal: &hivev1.AgentBareMetalPlatform{}},
		hivev1.PlatformAWS:            {AWS: raw},
		hivev1.PlatformAzure:          {Azure: raw},
		hivev1.PlatformBareMetal:      {BareMetal: raw},
		hivev1.PlatformGCP:            {GCP: raw},
		hivev1.PlatformIBMCloud:       {IBMCloud: raw},
		hivev1.PlatformNone:           {None: raw},
		hivev1.PlatformNutanix:        {Nutanix: raw},
		hivev1.PlatformOpenStack:      {OpenStack: raw},
		hivev1.PlatformVSphere:        {VSphere: raw},
	} {
		assert.Equal(t, want, platform.Name())
	}
}

func TestASummaryIsOfTheFirstConditionInTheWay(t *testing.T) {
	synced := hivev1.Condition{Type: "Synced", Status: corev1.ConditionTrue, Reason: "Synced", Message: "It is synced"}
	done := hivev1.Condition{Type: "Done", Status: corev1.ConditionTrue, Reason: "Completed", Message: "It is done"}
	late := hivev1.Condition{Type: "Done", Status: corev1.ConditionUnknown, Reason: "InProgress", Message: "It is not done"}
	bad := hivev1.Condition{Type: "Synced", Status: corev1.ConditionFalse, Reason: "InputError", Message: "It cannot be synced"}
	for sentence, test := range map[string]struct {
		given []hivev1.Condition
		want  hivev1.Condition
	}{
		"all are True: the last one says it": {
			[]hivev1.Condition{done, synced}, hivev1.Condition{Type: "Ready", Status: corev1.ConditionTrue, Reason: "Completed", Message: "It is done"},
		},
		"one is Unknown": {
			[]hivev1.Condition{synced, late}, hivev1.Condition{Type: "Ready", Status: corev1.ConditionFalse, Reason: "InProgress", Message: "It is not done"},
		},
		"two are in the way: the first that is asked for": {
			[]hivev1.Condition{late, bad}, hivev1.Condition{Type: "Ready", Status: corev1.ConditionFalse, Reason: "InputError", Message: "It cannot be synced"},
		},
		"one is missing": {
			[]hivev1.Condition{synced}, hivev1.Condition{Type: "Ready", Status: corev1.ConditionFalse, Reason: "Initialized", Message: "Done is not known yet"},
		},
	} {
		t.Run(sentence, func(t *testing.T) {
			assert.Equal(t, test.want, hivev1.Summarize("Ready", test.given, "Synced", "Done"))
		})
	}
}
