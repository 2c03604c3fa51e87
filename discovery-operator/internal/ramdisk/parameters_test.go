// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package ramdisk

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestParametersAreThoseOfIronicsAgent(t *testing.T) {
	o := Default()
	require.NoError(t, o.Apply(strings.Fields("quiet ipa-api-url=http://192.0.2.1:6385,http://192.0.2.2:6385 ipa-inspection-callback-url=http://192.0.2.1:5050/v1/continue "+
		"ipa-insecure=1 ipa-listen-port=9998 ipa-advertise-host=127.0.0.1 ipa-advertise-port=4711 ipa-advertise-protocol=http BOOTIF=01-52-54-00-00-00-0A muster-heartbeat=2s")))
	assert.Equal(t, Options{
		Ironic: "http://192.0.2.1:6385", Report: "http://192.0.2.1:5050/v1/continue", Listen: ":9998", Advertise: "127.0.0.1:4711", BootMAC: "52:54:00:00:00:0a",
		Heartbeat: 2 * time.Second, Insecure: true, PlainHTTP: true,
	}, o)
	require.NoError(t, o.Validate())
	for word, says := range map[string]string{"ipa-insecure=perhaps": "perhaps", "muster-heartbeat=often": "often"} {
		require.ErrorContains(t, o.Apply([]string{word}), says)
	}
}

func TestOptionsThatAreRefused(t *testing.T) {
	for says, change := range map[string]func(*Options){
		"add ipa-api-url=":             func(o *Options) { o.Ironic = "" },
		"ipa-api-url is no URL":        func(o *Options) { o.Ironic = "192.0.2.1:6385" },
		"callback-url is no URL":       func(o *Options) { o.Report = "file:///a" },
		"is too often: use 1s or more": func(o *Options) { o.Heartbeat = time.Millisecond },
	} {
		o := Default()
		o.Ironic = "http://192.0.2.1"
		require.NoError(t, o.Validate())
		change(&o)
		require.ErrorContains(t, o.Validate(), says)
	}
	_, _, err := Parse([]string{"--ironic=http://192.0.2.1"})
	require.ErrorContains(t, err, "set --disk and --inventory", "a process that was started with flags does not touch the machine")
	o, machine, err := Parse([]string{"--ironic=http://192.0.2.1", "--disk=/a", "--disk=/b"})
	require.NoError(t, err)
	assert.Equal(t, []string{"/a", "/b"}, o.Files)
	assert.False(t, machine)
}

// table is a structure of SMBIOS with its strings.
func table(kind byte, data []byte, text ...string) []byte {
	out := append([]byte{kind, byte(4 + len(data)), 0, 0}, data...)
	for _, s := range text {
		out = append(append(out, s...), 0)
	}
	if len(text) == 0 {
		out = append(out, 0)
	}
	return append(out, 0)
}

func TestTheFirmwareGivesParameters(t *testing.T) {
	memory := func(size uint16, extended uint32) []byte {
		data := make([]byte, 28)
		binary.LittleEndian.PutUint16(data[8:], size)
		binary.LittleEndian.PutUint32(data[24:], extended)
		return table(17, data)
	}
	var tables []byte
	for _, one := range [][]byte{
		table(1, []byte{1}, "QEMU"), table(11, []byte{2}, "another string", "muster-ramdisk:ipa-advertise-port=1 ipa-advertise-host=h"), table(2, nil),
		table(12, []byte{1}, "muster-ramdisk:another=kind"), memory(512, 0), memory(0x8000|2048, 0), memory(0x7FFF, 65536), memory(0xFFFF, 0), memory(0, 0), table(127, nil),
		table(11, []byte{1}, "muster-ramdisk:behind=the-end"),
	} {
		tables = append(tables, one...)
	}
	root := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(root, "firmware", "dmi", "tables"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(root, "firmware", "dmi", "tables", "DMI"), tables, 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(root, "cmdline"), []byte("console=ttyS0 ipa-api-url=http://a\n"), 0o600))
	assert.Equal(t, []string{"console=ttyS0", "ipa-api-url=http://a", "ipa-advertise-port=1", "ipa-advertise-host=h"}, parameters(root, root))
	assert.Equal(t, 512+2+65536, memoryMiB(tables))
}

func FuzzFirmware(f *testing.F) {
	f.Add(table(11, []byte{1}, "muster-ramdisk:a=b"))
	f.Add(table(17, make([]byte, 28)))
	f.Fuzz(func(_ *testing.T, tables []byte) {
		firmwareWords(tables)
		memoryMiB(tables)
	})
}

func TestTheInventoryIsWhatTheKernelSays(t *testing.T) {
	root := t.TempDir()
	for name, text := range map[string]string{
		"proc/cpuinfo": "processor\t: 0\nmodel name\t: Example CPU\ncpu MHz\t\t: 2000.5\nflags\t\t: vmx aes\n\nprocessor\t: 1\n", "proc/meminfo": "MemTotal:       2048 kB\nMemFree: 1 kB\n",
		"sys/class/dmi/id/sys_vendor": "Example Corp\n", "sys/class/dmi/id/product_name": "Server\n", "sys/class/dmi/id/product_serial": "SN1\n", "sys/class/dmi/id/bios_version": "1.0\n",
		"sys/devices/pci0000:00/0000:00:03.0/vendor": "0x8086\n", "sys/devices/pci0000:00/0000:00:03.0/device": "0x100e\n", "sys/class/net/lo/address": "00:00:00:00:00:00\n",
		"sys/class/net/eth9/address": "52:54:00:00:00:01\n", "sys/class/net/eth9/carrier": "1\n", "sys/class/net/eth9/speed": "1000\n",
	} {
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(root, name)), 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(root, name), []byte(text), 0o600))
	}
	require.NoError(t, os.Symlink("../../../devices/pci0000:00/0000:00:03.0", filepath.Join(root, "sys/class/net/eth9/device")))
	require.NoError(t, os.Symlink("/sys/bus/pci/drivers/e1000", filepath.Join(root, "sys/devices/pci0000:00/0000:00:03.0/driver")))
	i := machine{filepath.Join(root, "proc"), filepath.Join(root, "sys")}.inventory("52:54:00:00:00:01")
	assert.Equal(t, vendor{"Example Corp", "Server", "SN1", firmware{Version: "1.0"}}, i.Vendor)
	assert.Equal(t, 2, i.CPU.Count)
	assert.Equal(t, "Example CPU", i.CPU.Model)
	assert.Equal(t, []string{"vmx", "aes"}, i.CPU.Flags)
	assert.Equal(t, memory{2 << 20, 2}, i.Memory)
	assert.Equal(t, boot{"bios", "52:54:00:00:00:01"}, i.Boot)
	require.Len(t, i.NICs, 1)
	assert.Equal(t, nic{
		Name: "eth9", MAC: "52:54:00:00:00:01", Carrier: true, Vendor: "0x8086", Product: "0x100e", Speed: new(1000), PCI: "0000:00:03.0", Driver: "e1000",
	}, i.NICs[0])
}
