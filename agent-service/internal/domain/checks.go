// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package domain

import (
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"maps"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/google/uuid"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/muster-io/muster/agent-service/internal/nmstate"
)

// CheckID lets only UUIDs pass, in their usual form.
func CheckID(what, id string) error {
	if parsed, err := uuid.Parse(id); err != nil || parsed.String() != id {
		return Refuse(Invalid, "IDInvalid", "%s %q is not a UUID in lower case", what, Truncate(id, 64))
	}
	return nil
}

// CheckName is for names of InfraEnvs and clusters.
func CheckName(name string) error {
	if name == "" || utf8.RuneCountInString(name) > 253 {
		return Refuse(Invalid, "NameInvalid", "name must have 1 to 253 characters")
	}
	return oneLine(map[string]string{"name": name})
}

// oneLine refuses control characters: these settings become parts of lines in files of others, where a line break would begin another line.
func oneLine(settings map[string]string) error {
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		if strings.ContainsFunc(settings[name], unicode.IsControl) {
			return Refuse(Invalid, "ControlCharacter", "%s has a line break or another control character: leave it out", name)
		}
	}
	return nil
}

// checkKeys is oneLine for settings with one key in each line.
func checkKeys(what, keys string) error {
	for line := range strings.Lines(keys) {
		if err := oneLine(map[string]string{what: strings.ReplaceAll(strings.TrimRight(line, "\r\n"), "\t", " ")}); err != nil {
			return err
		}
	}
	return nil
}

func isAddress(s string) bool {
	_, err := netip.ParseAddr(s)
	return err == nil
}

// isHost is true for an IP address, and for a name. A text of numbers and dots is an address, or invalid.
func isHost(s string) bool {
	if isAddress(s) {
		return true
	}
	if strings.Trim(s, "0123456789.") == "" {
		return false
	}
	return len(validation.IsDNS1123Subdomain(strings.ToLower(strings.TrimSuffix(s, ".")))) == 0
}

// checkHosts is for lists of names and addresses, comma separated.
func checkHosts(what, list string) error {
	for one := range strings.SplitSeq(list, ",") {
		if one = strings.TrimSpace(one); one != "" && !isHost(one) {
			return Refuse(Invalid, "AddressInvalid", "%s: %q is neither a name nor an IP address", what, Truncate(one, 256))
		}
	}
	return nil
}

// checkProxy does not repeat addresses: they may hold a password.
func checkProxy(p Proxy) error {
	for what, address := range map[string]string{"http_proxy": p.HTTP, "https_proxy": p.HTTPS} {
		if address == "" {
			continue
		}
		parsed, err := url.Parse(address)
		if err != nil || parsed.Scheme != "http" && parsed.Scheme != "https" || !isHost(parsed.Hostname()) {
			return Refuse(Invalid, "ProxyInvalid", "%s is not the URL of a proxy: write http://host:port", what)
		}
	}
	for one := range strings.SplitSeq(p.NoProxy, ",") {
		one = strings.TrimSpace(one)
		_, err := netip.ParsePrefix(one)
		host, _, _ := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(one, "*"), "."), ":")
		if one != "" && one != "*" && err != nil && !isAddress(one) && !isHost(host) {
			return Refuse(Invalid, "ProxyInvalid", "no_proxy: %q is neither a name, an IP address nor a network", Truncate(one, 256))
		}
	}
	return nil
}

// checkPullSecret does not say what is wrong in more words: they would be parts of a secret.
func checkPullSecret(secret string) error {
	var content struct {
		Auths map[string]json.RawMessage `json:"auths"`
	}
	if secret != "" && (json.Unmarshal([]byte(secret), &content) != nil || content.Auths == nil) {
		return Refuse(Invalid, "PullSecretInvalid", `the pull secret is not a JSON object with credentials under "auths"`)
	}
	return nil
}

// ignitionVersion is that of configurations that current CoreOS understands.
var ignitionVersion = regexp.MustCompile(`^3\.[0-6]\.0$`)

func checkIgnition(what, config string) error {
	if config == "" {
		return nil
	}
	var content struct {
		Ignition struct {
			Version string `json:"version"`
		} `json:"ignition"`
	}
	switch {
	case !json.Valid([]byte(config)):
		return Refuse(Invalid, "IgnitionInvalid", "%s is not JSON", what)
	case json.Unmarshal([]byte(config), &content) != nil:
		return Refuse(Invalid, "IgnitionInvalid", "%s is not a configuration of ignition: it needs an object with ignition.version", what)
	case !ignitionVersion.MatchString(content.Ignition.Version):
		return Refuse(Invalid, "IgnitionInvalid", "%s has ignition.version %q: write one from 3.0.0 to 3.6.0", what, Truncate(content.Ignition.Version, 32))
	}
	return nil
}

func checkCertificates(what, bundle string) error {
	rest := []byte(bundle)
	for n := 1; strings.TrimSpace(string(rest)) != ""; n++ {
		var block *pem.Block
		block, rest = pem.Decode(rest)
		if block == nil && n > 1 && !strings.Contains(string(rest), "-----BEGIN") {
			return nil // a remark at the end
		}
		if block == nil || block.Type != "CERTIFICATE" {
			return Refuse(Invalid, "TrustBundleInvalid", "%s: number %d is not a certificate in PEM", what, n)
		}
		if _, err := x509.ParseCertificate(block.Bytes); err != nil {
			return Refuse(Invalid, "TrustBundleInvalid", "%s: certificate %d cannot be read", what, n)
		}
	}
	return nil
}

// maxKernelArguments is the room that live images have for a whole command line.
const maxKernelArguments = 2048

func checkKernelArguments(arguments []KernelArgument) error {
	size := 0
	for _, k := range arguments {
		switch {
		case !slices.Contains([]string{"append", "replace", "delete"}, k.Operation) || k.Value == "":
			return Refuse(Invalid, "KernelArgumentsInvalid", "kernel argument %q with operation %q: write append, replace or delete and a value", Truncate(k.Value, 256), Truncate(k.Operation, 32))
		case strings.ContainsFunc(k.Value, unicode.IsControl):
			// Boot loaders read what follows a line break as a command of theirs.
			return Refuse(Invalid, "KernelArgumentsInvalid", "kernel argument %q has a line break or another control character: leave it out", Truncate(k.Value, 256))
		case k.Operation != "delete":
			size += len(k.Value) + 1
		}
	}
	if size > maxKernelArguments {
		return Refuse(Invalid, "KernelArgumentsInvalid", "kernel arguments have %d bytes: live images have room for at most %d", size, maxKernelArguments)
	}
	return nil
}

func checkNetworks(config json.RawMessage) error {
	if len(config) == 0 {
		return nil
	}
	statements, err := nmstate.Read(config)
	if err != nil {
		return Refuse(Invalid, "NetworkInvalid", "static_network_config is not a list of networks of machines")
	}
	for n, statement := range statements {
		if !statement.IsMapping() {
			return Refuse(Invalid, "NetworkInvalid", "network_yaml of entry %d of static_network_config is not a mapping in YAML: write what nmstate shall make, such as interfaces", n+1)
		}
	}
	return nil
}

func checkLabels(labels map[string]string) error {
	for _, name := range slices.Sorted(maps.Keys(labels)) {
		value := labels[name]
		if wrong := append(validation.IsQualifiedName(name), validation.IsValidLabelValue(value)...); len(wrong) > 0 {
			return Refuse(Invalid, "LabelInvalid", "label %q with value %q: %s", Truncate(name, 320), Truncate(value, 64), wrong[0])
		}
	}
	return nil
}

// maxTaints bounds the taints of a Node.
const maxTaints = 64

// checkTaints refuses taints with which a kubelet would not start, or its Node would not be registered.
func checkTaints(taints []Taint) error {
	if len(taints) > maxTaints {
		return Refuse(Invalid, "TaintInvalid", "a node has at most %d taints", maxTaints)
	}
	for i, taint := range taints {
		wrong := append(validation.IsQualifiedName(taint.Key), validation.IsValidLabelValue(taint.Value)...)
		if !slices.Contains([]string{"NoSchedule", "PreferNoSchedule", "NoExecute"}, taint.Effect) {
			wrong = append(wrong, "the effect is NoSchedule, PreferNoSchedule or NoExecute")
		}
		if slices.ContainsFunc(taints[:i], func(t Taint) bool { return t.Key == taint.Key && t.Effect == taint.Effect }) {
			wrong = append(wrong, "it is there twice")
		}
		if len(wrong) > 0 {
			return Refuse(Invalid, "TaintInvalid", "taint %q with value %q and effect %q: %s", Truncate(taint.Key, 320), Truncate(taint.Value, 64), Truncate(taint.Effect, 64), wrong[0])
		}
	}
	return nil
}

// LabelValue makes a label's value of a text: what is not allowed there is left out.
func LabelValue(s string) string {
	kept := strings.Map(func(c rune) rune {
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.ContainsRune("-_.", c) {
			return c
		}
		return -1
	}, s)
	return strings.Trim(kept[:min(len(kept), validation.LabelValueMaxLength)], "-_.")
}
