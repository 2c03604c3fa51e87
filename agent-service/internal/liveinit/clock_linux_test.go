// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package liveinit

import (
	"encoding/binary"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A machine whose battery is empty starts in 1970, or in any other year.
func TestTheClockIsSetAsATimeServerSays(t *testing.T) {
	right := time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)
	for name, c := range map[string]struct {
		now    time.Time
		isSet  bool
		broken error
	}{
		"an empty battery":  {now: time.Unix(0, 0), isSet: true},
		"a far future":      {now: time.Date(2099, 1, 1, 0, 0, 0, 0, time.UTC), isSet: true},
		"a little wrong":    {now: right.Add(500 * time.Millisecond)},
		"it cannot be set":  {now: time.Unix(0, 0), isSet: true, broken: errors.New("operation not permitted")},
		"minutes of months": {now: right.Add(5 * time.Minute), isSet: true},
	} {
		t.Run(name, func(t *testing.T) {
			var asked []string
			var was time.Time
			one := clock{
				ask: func(server string) (time.Time, error) {
					if asked = append(asked, server); server == "away" {
						return time.Time{}, errors.New("time-out")
					}
					return right, nil
				},
				now: func() time.Time { return c.now },
				set: func(to time.Time) error { was = to; return c.broken },
			}
			assert.False(t, one.correct([]string{"away"}))
			assert.True(t, one.correct([]string{"away", "b", "c"}))
			assert.Equal(t, []string{"away", "away", "b"}, asked)
			assert.Equal(t, c.isSet, was.Equal(right))
		})
	}
}

func TestTimeServersAreThoseOfTheInfraEnv(t *testing.T) {
	assert.Equal(t, []string{"a.example.com", "192.0.2.1"}, timeSources([]string{"AGENT_URL=https://s", "AGENT_NTP_SOURCES=a.example.com, 192.0.2.1"}))
	assert.Empty(t, timeSources([]string{"AGENT_URL=https://s"}))
}

func TestATimeServerIsAsked(t *testing.T) {
	server, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	require.NoError(t, err)
	t.Cleanup(func() { _ = server.Close() })
	const until1970 = 2_208_988_800 // seconds from the begin of NTP's time
	right := time.Now().Add(time.Hour)
	go func() {
		packet := make([]byte, 512)
		for {
			n, from, err := server.ReadFromUDP(packet)
			if err != nil || n < 48 {
				return
			}
			answer := make([]byte, 48)
			answer[0], answer[1] = 0x24, 2 // version 4, server, stratum 2
			copy(answer[24:32], packet[40:48])
			for _, at := range []int{16, 32, 40} {
				binary.BigEndian.PutUint32(answer[at:], uint32(right.Unix()+until1970))
			}
			_, _ = server.WriteToUDP(answer, from)
		}
	}()
	answer, err := askTime(server.LocalAddr().String())
	require.NoError(t, err)
	assert.WithinDuration(t, right, answer, 10*time.Second)
}
