// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package hoststate

import (
	"fmt"
	"slices"
	"strings"
)

// Diagram draws the life of a host as a Mermaid state diagram. It draws the steps to another state, and not those that stay.
func Diagram() string {
	var b strings.Builder
	b.WriteString("```mermaid\nstateDiagram-v2\n    [*] --> None\n")
	for _, s := range States() {
		fmt.Fprintf(&b, "    %s: %s\n", identifier(s), label(s))
	}
	for _, from := range States() {
		for _, next := range append(States(), Gone) {
			if on := between(from, next); len(on) > 0 {
				fmt.Fprintf(&b, "    %s --> %s: %s\n", identifier(from), identifier(next), strings.Join(on, ", "))
			}
		}
	}
	b.WriteString("```\n")
	return b.String()
}

// Activities is a table, in Markdown, of what each state does while nothing new happens.
func Activities() string {
	var b strings.Builder
	b.WriteString("| State | Written as | Does | When deletion is requested |\n|---|---|---|---|\n")
	for _, s := range States() {
		does, deletion := table[s][Nothing], table[s][DeletionRequested]
		what := string(does.Do)
		switch {
		case s == PoweringOff || s == Deleting: // they do what they do while deletion is requested
			what = string(deletion.Do)
		case does.To != s:
			what = "goes on to " + label(does.To)
		}
		after := "goes on to " + label(deletion.To)
		if deletion.To == s {
			after = "goes on: " + string(deletion.Do)
		}
		fmt.Fprintf(&b, "| %s | `%q` | %s | %s |\n", label(s), string(s), what, after)
	}
	return b.String()
}

// between are the events that lead from one state to another.
func between(from, next State) []string {
	var on []string
	for _, e := range Events() {
		if step := table[from][e]; step.To == next && next != from {
			on = append(on, string(e))
		}
	}
	return on
}

func label(s State) string {
	switch s { //nolint:exhaustive // the others are called what they are written as
	case None:
		return "None"
	case Discovered:
		return "Discovered"
	case Gone:
		return "Gone"
	}
	words := strings.Fields(string(s))
	words[0] = strings.ToUpper(words[0][:1]) + words[0][1:]
	return strings.Join(words, " ")
}

func identifier(s State) string {
	if s == Gone {
		return "[*]"
	}
	words := strings.Fields(label(s))
	for i := range words {
		words[i] = strings.ToUpper(words[i][:1]) + words[i][1:]
	}
	return strings.Join(slices.Clip(words), "")
}
