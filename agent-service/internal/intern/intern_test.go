// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package intern

import (
	"slices"
	"strconv"
	"strings"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/assert"
)

func TestEqualTextsAreOne(t *testing.T) {
	var texts Texts
	first := strings.Clone("The host has enough memory")
	assert.Same(t, unsafe.StringData(first), unsafe.StringData(texts.Once(first)))
	again := strings.Clone(first)
	assert.NotSame(t, unsafe.StringData(first), unsafe.StringData(again))
	assert.Same(t, unsafe.StringData(first), unsafe.StringData(texts.Once(again)))
	assert.Equal(t, "another", texts.Once("another"))
	assert.Empty(t, texts.Once(""))
}

func TestTextsAreSharedInPlace(t *testing.T) {
	var texts Texts
	one, other, none := strings.Clone("worker"), strings.Clone("worker"), ""
	texts.Share(&one, &other, &none)
	assert.Same(t, unsafe.StringData(one), unsafe.StringData(other))
	assert.Equal(t, []string{"worker", "worker", ""}, []string{one, other, none})
}

func TestEqualListsAreOneAndShareTheirTexts(t *testing.T) {
	var lists Lists
	first := lists.Once([]string{"vmx", "sse2"})
	assert.Equal(t, []string{"vmx", "sse2"}, first)
	assert.Same(t, &first[0], &lists.Once([]string{strings.Clone("vmx"), strings.Clone("sse2")})[0])
	longer := lists.Once([]string{strings.Clone("vmx"), "sse2", "avx"})
	assert.Len(t, longer, 3)
	assert.Same(t, unsafe.StringData(first[0]), unsafe.StringData(longer[0]))
	assert.Equal(t, []string{"vm", "xsse2"}, lists.Once([]string{"vm", "xsse2"}), "the same characters in another list")
	assert.Equal(t, []string{"vmx", "", "sse2"}, lists.Once([]string{"vmx", "", "sse2"}))
	assert.Nil(t, lists.Once(nil))
	assert.NotNil(t, lists.Once([]string{}), "a list that is empty is not one that is absent")
}

func TestAListThatIsKeptIsNotTheOneThatWasGiven(t *testing.T) {
	var lists Lists
	given := []string{"up", "broadcast"}
	lists.Once(given)
	given[0] = "down"
	assert.Equal(t, []string{"up", "broadcast"}, lists.Once(slices.Clone([]string{"up", "broadcast"})))
}

func TestEqualMapsAreOneAndShareTheirTexts(t *testing.T) {
	var all Maps
	first := all.Once(map[string]string{"rack": "a", "role": "worker"})
	assert.Equal(t, map[string]string{"rack": "a", "role": "worker"}, first)
	again := all.Once(map[string]string{strings.Clone("role"): strings.Clone("worker"), strings.Clone("rack"): strings.Clone("a")})
	first["one"] = "and the same"
	assert.Equal(t, "and the same", again["one"])
	delete(first, "one")
	other := all.Once(map[string]string{"rack": "b", "role": strings.Clone("worker")})
	assert.Equal(t, map[string]string{"rack": "b", "role": "worker"}, other)
	assert.Same(t, unsafe.StringData(first["role"]), unsafe.StringData(other["role"]))
	assert.Equal(t, map[string]string{"role": "rack", "worker": "a"}, all.Once(map[string]string{"role": "rack", "worker": "a"}))
	assert.Nil(t, all.Once(nil))
	assert.NotNil(t, all.Once(map[string]string{}))
}

func TestTextsThatRecurStayWhereOthersAreForgotten(t *testing.T) {
	var texts Texts
	recurs := strings.Clone("The host is connected")
	texts.Once(recurs)
	for i := range 50_000 {
		texts.Once("Hostname host-" + strconv.Itoa(i) + " is allowed")
		if i%100 == 0 {
			assert.Same(t, unsafe.StringData(recurs), unsafe.StringData(texts.Once(strings.Clone(recurs))))
		}
	}
	assert.Less(t, len(texts.kept.recent)+len(texts.kept.previous), 2*generationSize/entrySize)
}

func TestLongTextsAreNotKeptForLong(t *testing.T) {
	var texts Texts
	const long = 32 << 10
	for i := range 1000 {
		texts.Once(strings.Repeat("x", long) + strconv.Itoa(i))
	}
	kept := 0
	for _, generation := range []map[string]string{texts.kept.recent, texts.kept.previous} {
		for text := range generation {
			kept += len(text)
		}
	}
	assert.LessOrEqual(t, kept, 2*(generationSize+2*long))
}
