// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package gather collects what support needs to find a fault, without secrets.
package gather

import (
	"net/url"
	"regexp"
	"slices"
	"strings"

	agentv1 "github.com/muster-io/muster/apis/agentinstall/v1beta1"
)

// removed stands where something was that may be a secret.
const removed = "REMOVED"

// secretFields may hold secrets whatever their value looks like: first-boot data, settings of an installer and its environment, headers. Some of them are annotations.
var secretFields = []string{
	"ignitionConfigOverride", "ignitionConfigOverrides", "ignitionEndpointHTTPHeaders", "installerEnv", "userData", "stringData", "data", "password", "token",
	"private-key-password", "psk", "mka-cak",
	agentv1.BMHIgnitionConfigOverridesAnnotation, "agent-install.openshift.io/install-config-overrides",
}

// noise is metadata that repeats the object: of the API server, and of kubectl, kapp and Rancher, which keep the whole object in an annotation.
var noise = []string{"managedFields", "kubectl.kubernetes.io/last-applied-configuration", "kapp.k14s.io/original", "objectset.rio.cattle.io/applied"}

// secretVariable are names of variables of an environment whose values may be secrets, such as OTEL_EXPORTER_OTLP_HEADERS.
var secretVariable = regexp.MustCompile(`(?i)headers|password|passwd|passphrase|token|secret|credential|api_?key|auth`)

var (
	jwt        = regexp.MustCompile(`\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*`)
	privateKey = regexp.MustCompile(`-----BEGIN [A-Z ]*PRIVATE KEY-----[\s\S]*?(-----END [A-Z ]*PRIVATE KEY-----|$)`)
	bearer     = regexp.MustCompile(`(?i)\b(bearer|basic)\s+[A-Za-z0-9._~+/=-]{8,}`)
	address    = regexp.MustCompile(`\b[a-z][a-z0-9+.-]*://[^\s"'<>]+`)
	// opaque is a segment of a path that may be a token: a UUID and a name are shorter.
	opaque = regexp.MustCompile(`^[A-Za-z0-9_-]{40,}$`)
)

// Object takes out of an object what may be a secret, and what only repeats the rest. It changes the object.
func Object(object map[string]any) {
	name, _ := object["name"].(string)
	for key, value := range object {
		switch {
		case key == "value" && secretVariable.MatchString(name) && !empty(value):
			object[key] = removed
		case slices.Contains(noise, key):
			delete(object, key)
		case slices.Contains(secretFields, key) && !empty(value):
			object[key] = removed
		default:
			object[key] = clean(value)
		}
	}
}

func empty(value any) bool {
	switch v := value.(type) {
	case string:
		return v == ""
	case map[string]any:
		return len(v) == 0
	case []any:
		return len(v) == 0
	}
	return value == nil
}

func clean(value any) any {
	switch v := value.(type) {
	case string:
		return Text(v)
	case map[string]any:
		Object(v)
	case []any:
		for i := range v {
			v[i] = clean(v[i])
		}
	}
	return value
}

// Text takes tokens, private keys, and what stands in addresses beside host and path out of a text, such as a line of a log.
func Text(text string) string {
	text = privateKey.ReplaceAllString(text, removed)
	text = jwt.ReplaceAllString(text, removed)
	text = bearer.ReplaceAllString(text, "$1 "+removed)
	return address.ReplaceAllStringFunc(text, cleanAddress)
}

// cleanAddress keeps scheme, host and path, and of the path no segment that may be a token.
func cleanAddress(raw string) string {
	u, err := url.Parse(raw)
	if err != nil {
		return removed
	}
	segments := strings.Split(u.Path, "/")
	changed := u.User != nil || u.RawQuery != "" || u.Fragment != ""
	for i, segment := range segments {
		if opaque.MatchString(segment) {
			segments[i], changed = removed, true
		}
	}
	if !changed {
		return raw
	}
	out := u.Scheme + "://" + u.Host + strings.Join(segments, "/")
	if u.RawQuery != "" {
		out += "?" + removed
	}
	return out
}
