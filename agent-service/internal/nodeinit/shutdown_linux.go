// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeinit

import (
	"bytes"
	"context"
	"encoding/binary"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// shutdown stops the machine.
type shutdown struct {
	// restart is true where the machine starts again.
	restart atomic.Bool
}

// watch returns a context that is done when the machine is to stop: on the power button (off), on Ctrl-Alt-Delete (restart),
// and on the signals TERM (restart) and USR2 (off).
func (s *shutdown) watch(ctx context.Context) context.Context {
	ctx, stop := context.WithCancel(ctx)
	// The kernel sends INT on Ctrl-Alt-Delete instead of restarting by itself.
	_ = unix.Reboot(unix.LINUX_REBOOT_CMD_CAD_OFF)
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, unix.SIGINT, unix.SIGTERM, unix.SIGUSR2)
	pressed := make(chan struct{}, 1)
	go powerButtons("/sys/class/input", "/dev/input", pressed)
	go func() {
		defer stop()
		select {
		case sent := <-signals:
			s.restart.Store(sent != unix.SIGUSR2)
			say("the machine is to stop (%s)", sent)
		case <-pressed:
			say("the machine is to stop (power button)")
		}
	}()
	return ctx
}

// powerButtons sends for each press of a power button. Devices of buttons appear a moment after their drivers are loaded; presses before that are lost.
func powerButtons(class, devices string, pressed chan<- struct{}) {
	known := map[string]bool{}
	for ; ; await(time.Second) {
		names, _ := filepath.Glob(filepath.Join(class, "event*", "device", "name"))
		for _, path := range names {
			name, err := os.ReadFile(path)
			event := filepath.Base(filepath.Dir(filepath.Dir(path)))
			if err != nil || known[event] || strings.TrimSpace(string(name)) != "Power Button" {
				continue
			}
			known[event] = true
			go func() {
				if device, err := os.Open(filepath.Join(devices, event)); err == nil {
					awaitPress(device.Read)
					pressed <- struct{}{}
				}
			}()
		}
	}
}

// inputEvent is the kernel's struct input_event.
type inputEvent struct {
	_          [2]int64
	Kind, Code uint16
	Value      int32
}

// awaitPress returns when a device that is read says that its power key goes down.
func awaitPress(read func([]byte) (int, error)) {
	const key, power = 1, 116
	buffer := make([]byte, 64*binary.Size(inputEvent{}))
	for {
		n, err := read(buffer)
		if err != nil {
			select {} // a device that is gone is never pressed
		}
		for from := bytes.NewReader(buffer[:n]); from.Len() > 0; {
			var e inputEvent
			if binary.Read(from, binary.NativeEndian, &e) == nil && e.Kind == key && e.Code == power && e.Value == 1 {
				return
			}
		}
	}
}

// finish ends the processes that are left, of containers above all, and switches the machine off, or restarts it.
func (s *shutdown) finish() {
	for _, step := range []struct {
		signal unix.Signal
		time   time.Duration
	}{{unix.SIGTERM, 5 * time.Second}, {unix.SIGKILL, 2 * time.Second}} {
		_ = unix.Kill(-1, step.signal)
		for deadline := time.Now().Add(step.time); time.Now().Before(deadline) && processes("/proc"); await(50 * time.Millisecond) {
		}
	}
	unix.Sync()
	for _, dir := range []string{bootPath, "/opt", "/etc"} {
		_ = unix.Unmount(dir, unix.MNT_DETACH)
	}
	unmountBelow("/proc/self/mounts", dataPath)
	if err := unix.Unmount(dataPath, 0); err != nil {
		_ = unix.Mount("", dataPath, "", unix.MS_REMOUNT|unix.MS_RDONLY, "")
	}
	command, says := unix.LINUX_REBOOT_CMD_POWER_OFF, "is switched off"
	if s.restart.Load() {
		command, says = unix.LINUX_REBOOT_CMD_RESTART, "restarts"
	}
	say("the machine %s", says)
	unix.Sync()
	_ = unix.Reboot(command)
	select {}
}

// processes is true while there are others than this one and the kernel's, which have no program.
func processes(proc string) bool {
	found, _ := filepath.Glob(filepath.Join(proc, "[0-9]*", "exe"))
	for _, exe := range found {
		if filepath.Base(filepath.Dir(exe)) == "1" {
			continue
		}
		if _, err := os.Readlink(exe); err == nil {
			return true
		}
	}
	return false
}

// unmountBelow unmounts the volumes of pods, the newest first.
func unmountBelow(mounts, dir string) {
	text, _ := os.ReadFile(mounts)
	lines := strings.Split(string(text), "\n")
	for _, line := range slices.Backward(lines) {
		fields := strings.Fields(line)
		if len(fields) > 1 && strings.HasPrefix(fields[1], dir+"/") {
			_ = unix.Unmount(fields[1], unix.MNT_DETACH)
		}
	}
}
