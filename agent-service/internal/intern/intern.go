// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package intern keeps equal texts, lists and maps in memory once.
package intern

import (
	"encoding/binary"
	"maps"
	"slices"
	"sync"
)

const (
	// generationSize is how many bytes the values of a generation take, about.
	generationSize = 512 << 10
	// entrySize is what a value takes beside its text.
	entrySize = 64
)

// table returns equal values as one. It is bounded: it has the values of two generations, and those that recur pass from one to the next. The zero table is empty. All
// methods are safe for concurrent use.
type table[T any] struct {
	mu               sync.Mutex
	recent, previous map[string]T
	// size is that of the recent generation, in bytes.
	size int
}

// once returns the value that is kept under a key; where there is none, it keeps what made returns.
func (t *table[T]) once(key string, made func() T) T {
	t.mu.Lock()
	defer t.mu.Unlock()
	if kept, is := t.recent[key]; is {
		return kept
	}
	kept, is := t.previous[key]
	if !is {
		kept = made()
	}
	if t.recent == nil || t.size >= generationSize {
		t.recent, t.previous, t.size = map[string]T{}, t.recent, 0
	}
	t.recent[key] = kept
	t.size += len(key) + entrySize
	return kept
}

// Texts returns equal texts as one. The zero Texts is empty.
type Texts struct{ kept table[string] }

// Once returns a text that is equal to the given one.
func (t *Texts) Once(text string) string {
	if text == "" {
		return ""
	}
	return t.kept.once(text, func() string { return text })
}

// Share makes texts refer to those that are kept.
func (t *Texts) Share(texts ...*string) {
	for _, text := range texts {
		*text = t.Once(*text)
	}
}

// Lists returns equal lists of texts as one. The zero Lists is empty.
type Lists struct {
	texts Texts
	kept  table[[]string]
}

// Once returns a list that is equal to the given one. It is not to be changed.
func (l *Lists) Once(list []string) []string {
	if len(list) == 0 {
		return list
	}
	return l.kept.once(keyOf(list), func() []string {
		own := make([]string, len(list))
		for i, text := range list {
			own[i] = l.texts.Once(text)
		}
		return own
	})
}

// Maps returns equal maps of texts as one. The zero Maps is empty.
type Maps struct {
	texts Texts
	kept  table[map[string]string]
}

// Once returns a map that is equal to the given one. It is not to be changed.
func (m *Maps) Once(of map[string]string) map[string]string {
	if len(of) == 0 {
		return of
	}
	entries := make([]string, 0, 2*len(of))
	for _, name := range slices.Sorted(maps.Keys(of)) {
		entries = append(entries, name, of[name])
	}
	return m.kept.once(keyOf(entries), func() map[string]string {
		own := make(map[string]string, len(of))
		for name, value := range of {
			own[m.texts.Once(name)] = m.texts.Once(value)
		}
		return own
	})
}

// keyOf tells lists apart that hold the same characters.
func keyOf(list []string) string {
	var key []byte
	for _, text := range list {
		key = append(binary.AppendUvarint(key, uint64(len(text))), text...)
	}
	return string(key)
}
