// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package ramdisk

import (
	"bytes"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// Options say where Ironic is, and what is the machine.
type Options struct {
	// Ironic is the URL of Ironic's API without version, and Report where the inventory is posted to; the empty one is for none.
	Ironic, Report string
	// Listen is the address and port of the agent's own API. Advertise is what Ironic finds it at; the empty host is the address of this machine
	// on the way to Ironic.
	Listen, Advertise string
	// BootMAC is the address of the card that the machine booted from, if the boot loader tells.
	BootMAC string
	// Heartbeat is the longest time between two signs of life.
	Heartbeat time.Duration
	// Insecure accepts any certificate of Ironic, and of servers of images, which are verified by their checksums.
	Insecure bool
	// PlainHTTP serves the agent's API without TLS.
	PlainHTTP bool
	// Files are regular files in the place of disks, and Inventory a file with a report in the place of what the machine says. With either, the
	// program ends where it would restart the machine or switch it off.
	Files     []string
	Inventory string
}

const (
	defaultPort      = "9999"
	defaultHeartbeat = 30 * time.Second
	// mark begins those strings of the firmware that are parameters.
	mark = "muster-ramdisk:"
)

// Default are options for a machine whose boot loader says nothing.
func Default() Options { return Options{Listen: ":" + defaultPort, Heartbeat: defaultHeartbeat} }

// Apply takes the parameters out of words of a command line of the kernel, which are those of ironic-python-agent. Other words are ignored.
func (o *Options) Apply(words []string) error {
	var errs []error
	for _, word := range words {
		name, value, _ := strings.Cut(word, "=")
		var err error
		switch strings.ReplaceAll(name, "_", "-") {
		case "ipa-api-url":
			o.Ironic, _, _ = strings.Cut(value, ",")
		case "ipa-inspection-callback-url":
			o.Report, _, _ = strings.Cut(value, ",")
		case "ipa-listen-host":
			_, port, _ := net.SplitHostPort(o.Listen)
			o.Listen = net.JoinHostPort(value, port)
		case "ipa-listen-port":
			host, _, _ := net.SplitHostPort(o.Listen)
			o.Listen = net.JoinHostPort(host, value)
		case "ipa-advertise-host":
			_, port, _ := net.SplitHostPort(o.Advertise)
			o.Advertise = net.JoinHostPort(value, port)
		case "ipa-advertise-port":
			host, _, _ := net.SplitHostPort(o.Advertise)
			o.Advertise = net.JoinHostPort(host, value)
		case "ipa-advertise-protocol":
			o.PlainHTTP = value == "http"
		case "ipa-insecure":
			o.Insecure, err = strconv.ParseBool(value)
		case "muster-heartbeat":
			o.Heartbeat, err = time.ParseDuration(value)
		case "BOOTIF":
			o.BootMAC = bootMAC(value)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("parameter %s: %w", word, err))
		}
	}
	return errors.Join(errs...)
}

// bootMAC reads BOOTIF=01-52-54-00-00-00-01, as PXELINUX writes it.
func bootMAC(value string) string {
	mac, err := net.ParseMAC(strings.TrimPrefix(strings.ToLower(value), "01-"))
	if err != nil || len(mac) != 6 {
		return ""
	}
	return mac.String()
}

// Validate fails with a sentence for each option that cannot be used.
func (o Options) Validate() error {
	var errs []error
	if o.Ironic == "" {
		errs = append(errs, errors.New("there is no URL of Ironic: add ipa-api-url=http://ADDRESS:6385 to the command line of the kernel, or set --ironic"))
	}
	for name, text := range map[string]string{"ipa-api-url": o.Ironic, "ipa-inspection-callback-url": o.Report} {
		u, err := url.Parse(text)
		if text != "" && (err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https") {
			errs = append(errs, fmt.Errorf("%s is no URL of http or https", name))
		}
	}
	if o.Heartbeat < time.Second {
		errs = append(errs, fmt.Errorf("a heartbeat every %s is too often: use 1s or more", o.Heartbeat))
	}
	return errors.Join(errs...)
}

// emulated reports whether the machine is the one that this process runs in, or made of files.
func (o Options) emulated() bool { return len(o.Files) > 0 || o.Inventory != "" }

// parameters are the words that the boot loader and the firmware give: the command line of the kernel, and strings of SMBIOS that begin with
// "muster-ramdisk:", which hypervisors can set for each machine. Those of the firmware come last, and win.
func parameters(proc, sys string) []string {
	line, _ := os.ReadFile(filepath.Join(proc, "cmdline"))
	tables, _ := os.ReadFile(filepath.Join(sys, "firmware", "dmi", "tables", "DMI"))
	return append(strings.Fields(string(line)), firmwareWords(tables)...)
}

// structure is one of the tables of SMBIOS: its kind is the first byte, and strings follow it.
type structure struct {
	data    []byte
	strings []string
}

// structures splits tables of SMBIOS. Structures that are cut off are left out.
func structures(tables []byte) []structure {
	const last = 127
	var out []structure
	for len(tables) >= 4 && tables[0] != last {
		length := int(tables[1])
		if length < 4 || length > len(tables) {
			break
		}
		end := bytes.Index(tables[length:], []byte{0, 0})
		if end < 0 {
			break
		}
		out = append(out, structure{tables[:length], strings.Split(string(tables[length:length+end]), "\x00")})
		tables = tables[length+end+2:]
	}
	return out
}

// firmwareWords reads the strings of type 11 (OEM strings) out of tables of SMBIOS.
func firmwareWords(tables []byte) []string {
	var out []string
	for _, s := range structures(tables) {
		for _, text := range s.strings {
			if words, ok := strings.CutPrefix(text, mark); ok && s.data[0] == 11 {
				out = append(out, strings.Fields(words)...)
			}
		}
	}
	return out
}

// memoryMiB is the size of the memory that tables of SMBIOS (type 17, memory devices) tell; 0 where they do not.
func memoryMiB(tables []byte) int {
	const unknown, extended, kibibytes = 0xFFFF, 0x7FFF, 0x8000
	sum := 0
	for _, s := range structures(tables) {
		if s.data[0] != 17 || len(s.data) < 14 {
			continue
		}
		switch size := int(binary.LittleEndian.Uint16(s.data[12:])); {
		case size == unknown:
		case size == extended && len(s.data) >= 32:
			sum += int(binary.LittleEndian.Uint32(s.data[28:]) & 0x7FFFFFFF)
		case size&kibibytes != 0:
			sum += (size &^ kibibytes) >> 10
		default:
			sum += size
		}
	}
	return sum
}

// files collects a flag that is given several times.
type files []string

func (f *files) String() string { return strings.Join(*f, ",") }

// Set adds a path.
func (f *files) Set(path string) error {
	*f = append(*f, path)
	return nil
}

// Parse reads the options of a process: its flags, and without them the parameters of the machine, which it may then restart and switch off.
func Parse(args []string) (o Options, machine bool, err error) {
	o = Default()
	if len(args) == 0 {
		return o, true, o.Apply(parameters("/proc", "/sys"))
	}
	fs := flag.NewFlagSet("ramdisk", flag.ContinueOnError)
	fs.StringVar(&o.Ironic, "ironic", "", "URL of Ironic's API")
	fs.StringVar(&o.Report, "report-to", "", "URL that the inventory is posted to; empty for no report")
	fs.StringVar(&o.Listen, "listen", o.Listen, "address and port for Ironic's commands")
	fs.StringVar(&o.Advertise, "advertise", "", "address and port that Ironic finds them at; empty for those of this machine")
	fs.DurationVar(&o.Heartbeat, "heartbeat", o.Heartbeat, "longest time between two heartbeats")
	fs.BoolVar(&o.Insecure, "insecure", false, "accept any certificate of Ironic and of servers of images")
	fs.BoolVar(&o.PlainHTTP, "plain-http", false, "take commands without TLS")
	fs.Var((*files)(&o.Files), "disk", "regular file in the place of a disk; may be given several times")
	fs.StringVar(&o.Inventory, "inventory", "", "file with the report to post in the place of what this machine is")
	if err := fs.Parse(args); err != nil {
		return o, false, err
	}
	if !o.emulated() {
		return o, false, errors.New("with flags, the machine is made of files: set --disk and --inventory")
	}
	return o, false, nil
}
