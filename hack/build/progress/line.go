// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package progress

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"
)

const (
	// interval is how often the line moves in a terminal.
	interval = 200 * time.Millisecond
	// plainInterval is the least time between two lines elsewhere.
	plainInterval = 10 * time.Second
	// width is the least width that a terminal is expected to have.
	width = 79
)

// IsTerminal reports whether a line of the file can be redrawn.
func IsTerminal(file *os.File) bool {
	info, err := file.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0 && os.Getenv("TERM") != "dumb" && os.Getenv("TERM") != ""
}

// Line shows a text that changes: in a terminal one line that is redrawn, elsewhere a new line at most every ten seconds.
// It is used by one goroutine.
type Line struct {
	// Out is where it is shown; Terminal is true if a line there can be redrawn.
	Out      io.Writer
	Terminal bool
	// Last is when the last plain line was written.
	Last time.Time

	drawn bool
}

// Update shows the text at the given time.
func (l *Line) Update(now time.Time, text string) {
	if l.Terminal {
		if runes := []rune(text); len(runes) > width {
			text = string(runes[:width])
		}
		_, _ = fmt.Fprint(l.Out, "\r\x1b[K"+text)
		l.drawn = true
		return
	}
	if now.Sub(l.Last) >= plainInterval {
		l.Last = now
		_, _ = fmt.Fprintln(l.Out, text)
	}
}

// Say shows a text that stays.
func (l *Line) Say(text string) {
	l.Erase()
	_, _ = fmt.Fprintln(l.Out, strings.TrimRight(text, "\n"))
}

// Erase removes the line that moves.
func (l *Line) Erase() {
	if l.drawn {
		_, _ = fmt.Fprint(l.Out, "\r\x1b[K")
		l.drawn = false
	}
}
