// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"sync"
)

// maxLogSize is when a log is set aside; one predecessor is kept.
const maxLogSize = 8 << 20

// boundedLog is the log file of one process. Writes never fail: a process must not die because its log cannot grow.
type boundedLog struct {
	path string

	mu   sync.Mutex
	file *os.File
	size int64
	// closed says that the process has ended.
	closed bool
}

// openLog begins a new log and keeps the previous one beside it.
func openLog(path string) (*boundedLog, error) {
	l := &boundedLog{path: path}
	return l, l.rotate()
}

// Write appends to the log; it always accepts everything.
func (l *boundedLog) Write(content []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.size > maxLogSize || l.file == nil && !l.closed { // there may be room again
		_ = l.rotate()
	}
	if l.file != nil {
		n, _ := l.file.Write(content)
		l.size += int64(n)
	}
	return len(content), nil
}

func (l *boundedLog) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	if l.file != nil {
		_ = l.file.Close()
		l.file = nil
	}
}

func (l *boundedLog) rotate() error {
	if l.file != nil {
		_ = l.file.Close()
	}
	_ = os.Rename(l.path, l.path+".previous")
	l.size = 0
	var err error
	l.file, err = os.OpenFile(l.path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC|os.O_APPEND, 0o600)
	if err != nil {
		l.file = nil
	}
	return err
}

const (
	tailBytes = 16 << 10
	tailLines = 12
	// maxEssence bounds what of a log line goes into a sentence, in bytes.
	maxEssence = 400
)

// logTail returns the last lines of a log without secrets, those that say what went wrong last: warnings and worse,
// where the log has levels, else simply the last.
func logTail(path string) []string {
	file, err := os.Open(path)
	if err != nil {
		return nil
	}
	defer func() { _ = file.Close() }()
	if info, err := file.Stat(); err == nil && info.Size() > tailBytes {
		_, _ = file.Seek(-tailBytes, 2)
	}
	content := make([]byte, tailBytes)
	n, _ := file.Read(content)
	lines := strings.Split(strings.TrimSpace(string(content[:n])), "\n")
	var bad, all []string
	for _, line := range lines {
		line = redact(line)
		if line == "" {
			continue
		}
		all = append(all, line)
		if complains.MatchString(line) {
			bad = append(bad, line)
		}
	}
	if len(bad) > 0 {
		all = bad
	}
	return all[max(0, len(all)-tailLines):]
}

var (
	complains = regexp.MustCompile(`^[EF]\d{4} |^Error: |^panic: |"level":"(error|fatal|panic)"`)
	secrets   = regexp.MustCompile(`(?i)(bearer|authorization|token|password|secret)("?\s*[:=]\s*"?|\s+)[A-Za-z0-9._~+/=-]{8,}`)
)

func redact(line string) string {
	return secrets.ReplaceAllString(strings.TrimSpace(line), "$1$2[redacted]")
}

var (
	klogHeader = regexp.MustCompile(`^[IWEF]\d{4} [0-9:.]+\s+\d+ [^ ]+\] `)
	timestamp  = regexp.MustCompile(`^\d{4}[-/]\d\d[-/]\d\d[T ][0-9:.]+Z?\s*`)
)

// essence is what a log line says, without the time and place that would make every repetition look new.
func essence(line string) string {
	var structured struct {
		Msg   string `json:"msg"`
		Error string `json:"error"`
	}
	if json.Unmarshal([]byte(line), &structured) == nil && structured.Msg != "" {
		return shorten(strings.TrimSuffix(structured.Msg+": "+structured.Error, ": "))
	}
	line = timestamp.ReplaceAllString(klogHeader.ReplaceAllString(line, ""), "")
	return shorten(strings.Trim(strings.TrimPrefix(line, "Error: "), `"`))
}

func shorten(sentence string) string {
	if len(sentence) <= maxEssence {
		return sentence
	}
	return strings.ToValidUTF8(sentence[:maxEssence], "") + "…"
}
