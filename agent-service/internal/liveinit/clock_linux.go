// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package liveinit

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/beevik/ntp"
	"golang.org/x/sys/unix"
)

const (
	// timeSourcesSetting names the time servers of the InfraEnv in the environment of the agent, with commas between them.
	timeSourcesSetting = "AGENT_NTP_SOURCES="
	// clockTolerance is how wrong the clock may be before it is set.
	clockTolerance = time.Second
	// timeRetry is how long the image waits after no server answered, timeInterval after one did.
	timeRetry, timeInterval = 10 * time.Second, time.Hour
	askPatience             = 5 * time.Second
	rtcPath                 = "/dev/rtc0"
)

// timeSources are the time servers that the settings of the agent name.
func timeSources(settings []string) []string {
	for _, line := range settings {
		if names, found := strings.CutPrefix(line, timeSourcesSetting); found {
			return TimeServers(names)
		}
	}
	return nil
}

// TimeServers are those of a list with commas between them.
func TimeServers(list string) []string {
	return strings.FieldsFunc(list, func(r rune) bool { return r == ',' || r == ' ' })
}

// KeepClock sets the clock of the machine, and that of its hardware, as time servers say, for as long as the machine runs. It returns where there are none.
func KeepClock(servers []string) {
	clock{ask: askTime, now: time.Now, set: setClock}.keep(servers)
}

// clock is that of the machine.
type clock struct {
	ask func(server string) (time.Time, error)
	now func() time.Time
	set func(time.Time) error
}

// keep sets the clock as the servers say, for as long as the machine runs. With a clock that is wrong by years, no certificate of the service is valid.
func (c clock) keep(servers []string) {
	for len(servers) > 0 {
		wait := timeRetry
		if c.correct(servers) {
			wait = timeInterval
		}
		time.Sleep(wait) //nolint:forbidigo // as chrony polls
	}
}

// correct takes the time of the first server that answers with a usable one; it is false where none does.
func (c clock) correct(servers []string) bool {
	for _, server := range servers {
		answer, err := c.ask(server)
		if err != nil {
			continue
		}
		if off := answer.Sub(c.now()).Round(time.Millisecond); off.Abs() > clockTolerance {
			if err := c.set(answer); err != nil {
				say("setting the clock: %v", err)
				return true
			}
			say("the clock was wrong by %s, and is set as %s says", off, server)
		}
		return true
	}
	return false
}

// askTime asks a time server. The difference that the protocol computes is of use for 68 years only, so that the server's own time counts.
func askTime(server string) (time.Time, error) {
	answer, err := ntp.QueryWithOptions(server, ntp.QueryOptions{Timeout: askPatience})
	if err == nil {
		err = answer.Validate()
	}
	if err != nil {
		return time.Time{}, err
	}
	return answer.Time.Add(answer.RTT / 2), nil
}

// setClock sets the clock of the kernel, and that of the hardware, with which the installed system starts. Not every machine has the latter.
func setClock(to time.Time) error {
	now := unix.NsecToTimeval(to.UnixNano())
	if err := unix.Settimeofday(&now); err != nil {
		return err
	}
	hardware, err := os.OpenFile(rtcPath, os.O_RDWR, 0)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { _ = hardware.Close() }()
	u := to.UTC()
	err = unix.IoctlSetRTCTime(int(hardware.Fd()), &unix.RTCTime{
		Sec: int32(u.Second()), Min: int32(u.Minute()), Hour: int32(u.Hour()), Mday: int32(u.Day()), Mon: int32(u.Month()) - 1, Year: int32(u.Year()) - 1900, //nolint:gosec // small numbers
	})
	if err != nil {
		return fmt.Errorf("of the hardware: %w", err)
	}
	return nil
}
