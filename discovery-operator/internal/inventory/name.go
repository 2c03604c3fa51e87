// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"net/netip"
	"strings"

	metal3v1 "github.com/muster-io/muster/apis/metal3/v1alpha1"
)

// maxName is the longest name of an object.
const maxName = 253

// placeholders stand where a maker or an installer put nothing. They identify no machine.
var placeholders = map[string]bool{
	"": true, "0": true, "none": true, "(none)": true, "null": true, "n/a": true, "na": true, "unknown": true, "empty": true,
	"not specified": true, "not available": true, "not applicable": true, "not set": true, "unspecified": true, "invalid": true,
	"default": true, "default string": true, "system serial number": true, "chassis serial number": true, "serial number": true,
	"serial": true, "serialnumber": true, "to be filled by o.e.m.": true, "to be filled by oem": true, "o.e.m.": true, "oem": true,
	"0123456789": true, "123456789": true, "1234567890": true, "12345678": true, "123456": true, "1234": true, "test": true,
	"system product name": true, "vmware": true,
}

// rescueNames are host names that ramdisks give to every machine.
var rescueNames = map[string]bool{
	"localhost": true, "localhost.localdomain": true, "localhost6": true, "vm": true, "host": true, "ramdisk": true, "ipa": true,
	"live": true, "tinycore": true, "box": true, "debian": true, "ubuntu": true, "fedora": true, "centos": true, "base": true,
	"installer": true, "rescue": true, "archiso": true, "linux": true, "coreos": true, "localhost4": true,
}

// Placeholder reports whether a reported serial number, vendor or name stands for "nothing was filled in": a known
// filler, or one character repeated.
func Placeholder(s string) bool {
	s = strings.ToLower(strings.TrimSpace(s))
	if placeholders[s] {
		return true
	}
	return strings.Trim(s, s[:1]+" -.") == ""
}

// NormalSerial returns the serial number as an identity, empty when it is none.
func NormalSerial(s string) string {
	if Placeholder(s) {
		return ""
	}
	return strings.ToLower(strings.TrimSpace(s))
}

// naming is what names can be made of.
type naming struct {
	report  *Report
	bootMAC string
	node    string
	// expression is the value of the template's expression, empty if there is none or it failed.
	expression string
}

// value returns the raw value of a detail, empty when it is missing or a placeholder.
func (n naming) value(d metal3v1.HardwareDetail) string {
	switch d {
	case metal3v1.DetailHostname:
		h := strings.ToLower(n.report.Hardware.Hostname)
		if rescueNames[h] || Placeholder(h) {
			return ""
		}
		return h
	case metal3v1.DetailIP:
		for i := range n.report.Hardware.NIC {
			ip, err := netip.ParseAddr(n.report.Hardware.NIC[i].IP)
			if err == nil && ip.IsGlobalUnicast() {
				return strings.NewReplacer(".", "-", ":", "-").Replace(ip.String())
			}
		}
		return ""
	case metal3v1.DetailSerialNumber:
		return NormalSerial(n.report.Hardware.SystemVendor.SerialNumber)
	case metal3v1.DetailBootMAC:
		return strings.ReplaceAll(n.bootMAC, ":", "-")
	case metal3v1.DetailProvisioningID:
		return n.node
	default:
		return ""
	}
}

// hostName names a host: the first detail, of the template's choice and then of its fallbacks, that the machine has and that
// makes a legal name. It returns empty strings when there is none.
func hostName(t metal3v1.ResourceNameTemplate, n naming) (string, metal3v1.HardwareDetail) {
	try := func(d metal3v1.HardwareDetail) string {
		value := n.value(d)
		if value == "" {
			return ""
		}
		return LegalName(t.Prefix + value + t.Suffix)
	}
	if n.expression != "" {
		if name := LegalName(t.Prefix + n.expression + t.Suffix); name != "" {
			return name, t.HardwareDetails
		}
	}
	if name := try(t.HardwareDetails); name != "" {
		return name, t.HardwareDetails
	}
	for _, d := range t.Fallback {
		if name := try(d); name != "" {
			return name, d
		}
	}
	return "", ""
}

// LegalName makes text a legal object name: lower case; anything but letters, digits, "." and "-" becomes "-"; each part
// between dots begins and ends with a letter or digit; at most 253 characters. It returns "" when nothing legal is
// left, and for a bare UUID, which other operators refuse as the name of a host.
func LegalName(s string) string {
	mapped := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9', r == '.', r == '-':
			return r
		case r >= 'A' && r <= 'Z':
			return r + 'a' - 'A'
		default:
			return '-'
		}
	}, s)
	if len(mapped) > maxName {
		mapped = mapped[:maxName]
	}
	parts := strings.Split(mapped, ".")
	kept := parts[:0]
	for _, p := range parts {
		if p = strings.Trim(p, "-"); p != "" {
			kept = append(kept, p)
		}
	}
	name := strings.Join(kept, ".")
	if isUUID(name) {
		return ""
	}
	return name
}

// isUUID reports whether s is a UUID in its usual form.
func isUUID(s string) bool {
	if len(s) != 36 {
		return false
	}
	for i := range len(s) {
		dash := i == 8 || i == 13 || i == 18 || i == 23
		if dash != (s[i] == '-') || !dash && strings.IndexByte("0123456789abcdefABCDEF", s[i]) < 0 {
			return false
		}
	}
	return true
}

// LegalLabel makes text a legal label value: at most 63 characters out of letters, digits, ".", "_" and "-", beginning and
// ending with a letter or digit. Other characters become "-".
func LegalLabel(s string) string {
	mapped := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9', r >= 'A' && r <= 'Z', r == '.', r == '-', r == '_':
			return r
		default:
			return '-'
		}
	}, s)
	if len(mapped) > 63 {
		mapped = mapped[:63]
	}
	return strings.Trim(mapped, "-._")
}
