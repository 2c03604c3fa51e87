// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"golang.org/x/term"
)

// screen shows what happens: lines that stay, and below them, on a terminal, what is being done and a table, both redrawn in place.
// Where there is no terminal, everything is a line, and a table is the lines of it that are new.
type screen struct {
	out      *os.File
	terminal bool
	started  time.Time

	mu      sync.Mutex
	doing   string
	since   time.Time
	table   []string
	drawn   int // lines below the cursor's home that are to be redrawn
	frame   int
	printed map[string]bool
	stop    chan struct{}
	stopped chan struct{}
}

const (
	green, red, dim, bold, plain = "\x1b[32m", "\x1b[31m", "\x1b[2m", "\x1b[1m", "\x1b[0m"
	spinner                      = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
	// longStep is after how many seconds a step says that it is still going on, where nothing can be redrawn.
	longStep = 15 * time.Second
)

func newScreen(out *os.File) *screen {
	s := &screen{
		out: out, terminal: term.IsTerminal(int(out.Fd())) && os.Getenv("TERM") != "dumb", started: time.Now(),
		printed: map[string]bool{}, stop: make(chan struct{}), stopped: make(chan struct{}),
	}
	go s.animate()
	return s
}

func (s *screen) animate() {
	defer close(s.stopped)
	period := 120 * time.Millisecond
	if !s.terminal {
		period = longStep
	}
	tick := time.NewTicker(period)
	defer tick.Stop()
	for {
		select {
		case <-s.stop:
			return
		case <-tick.C:
			s.mu.Lock()
			s.frame++
			if s.terminal {
				s.redraw()
			} else if s.doing != "" && time.Since(s.since) >= longStep {
				s.line(fmt.Sprintf("… still %s (%.0f s)", s.doing, time.Since(s.since).Seconds()))
			}
			s.mu.Unlock()
		}
	}
}

// close ends the drawing and leaves what is on the screen.
func (s *screen) close() {
	close(s.stop)
	<-s.stopped
	s.idle()
}

// working says what is being done from now on.
func (s *screen) working(what string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.doing, s.since = what, time.Now()
	if s.terminal {
		s.redraw()
	} else {
		s.line("… " + what)
	}
}

// idle says that nothing is being done.
func (s *screen) idle() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.doing, s.table = "", nil
	if s.terminal {
		s.redraw()
	}
}

// done, failed and say add a line that stays.
func (s *screen) done(what string)   { s.add(s.paint(green, "✓") + " " + what) }
func (s *screen) failed(what string) { s.add(s.paint(red, "✗") + " " + what) }
func (s *screen) say(what string)    { s.add(what) }

func (s *screen) add(what string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.terminal {
		s.line(what)
		return
	}
	s.erase()
	s.write(what + "\n")
	s.redraw()
}

// show replaces the table.
func (s *screen) show(table []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.table = table
	if s.terminal {
		s.redraw()
	}
}

// note adds a line once, where nothing can be redrawn; a terminal has the table.
func (s *screen) note(what string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.terminal && !s.printed[what] {
		s.printed[what] = true
		s.line("    " + what)
	}
}

// write shows a text. A terminal that is gone is no reason to leave things behind: the context ends too, then.
func (s *screen) write(text string) { _, _ = s.out.WriteString(text) }

func (s *screen) line(what string) {
	if what == "" {
		s.write("\n")
		return
	}
	s.write(fmt.Sprintf("%6.1fs  %s\n", time.Since(s.started).Seconds(), what))
}

func (s *screen) paint(color, text string) string {
	if !s.terminal || os.Getenv("NO_COLOR") != "" {
		return text
	}
	return color + text + plain
}

func (s *screen) erase() {
	if s.drawn > 0 {
		s.write(fmt.Sprintf("\x1b[%dA\x1b[J", s.drawn))
		s.drawn = 0
	}
}

func (s *screen) redraw() {
	width, height, err := term.GetSize(int(s.out.Fd()))
	if err != nil || width < 20 {
		width, height = 80, 24
	}
	var lines []string
	if s.doing != "" {
		turn := []rune(spinner)
		lines = append(lines, fmt.Sprintf("%s %s %s", s.paint(green, string(turn[s.frame%len(turn)])), s.doing, s.paint(dim, fmt.Sprintf("%.0f s", time.Since(s.since).Seconds()))))
	}
	if len(s.table) > 0 {
		lines = append(lines, "")
		lines = append(lines, s.table...)
	}
	if len(lines) > height-2 {
		lines = lines[:max(height-2, 1)]
	}
	s.erase()
	var text strings.Builder
	for _, line := range lines {
		text.WriteString(cut(line, width-1))
		text.WriteString("\n")
	}
	s.write(text.String())
	s.drawn = len(lines)
}

// cut shortens a line to a width, not counting colours.
func cut(line string, width int) string {
	if utf8.RuneCountInString(line) <= width {
		return line
	}
	var out strings.Builder
	seen, escape := 0, false
	for _, r := range line {
		switch {
		case r == '\x1b':
			escape = true
		case escape:
			escape = r != 'm'
		default:
			seen++
		}
		if seen > width {
			break
		}
		out.WriteRune(r)
	}
	if strings.Contains(line, "\x1b") {
		out.WriteString(plain)
	}
	return out.String()
}
