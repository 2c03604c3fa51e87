// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package firstboot renders what an installed system is configured with when it boots first: a configuration of ignition or of cloud-init, and the network that an
// InfraEnv states for it.
package firstboot

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"text/template"

	"github.com/muster-io/muster/agent-service/internal/agentproto"
	"github.com/muster-io/muster/agent-service/internal/domain"
	"github.com/muster-io/muster/agent-service/internal/join"
)

// CloudInit is the FirstBoot of images whose system reads cloud-init. Others read ignition.
const CloudInit = "cloud-init"

// AnchorPath is where CoreOS and its relatives look for certificates to trust.
const AnchorPath = "/etc/pki/ca-trust/source/anchors/muster.pem"

// registriesPath is where the kubelet of every distribution looks for credentials of registries.
const registriesPath = "/var/lib/kubelet/config.json"

// Values are what a template of first-boot data can use. Templates of users name the fields: they are not renamed.
type Values struct {
	Hostname, Role, HostID, InfraEnvID, ClusterID, ClusterName, BaseDomain, SSHKey, BaseURL, Token string
	// Trusted are PEM certificates that the system trusts beside its own.
	Trusted string
	// Proxy is how the system reaches the network.
	Proxy domain.Proxy
	// NTPSources are the time servers of the InfraEnv and of the cluster, with commas between them.
	NTPSources string
	// PullSecret is the cluster's, for what runs on the system: a secret as the token is.
	PullSecret string
	// Overrides is the host's ignition_config_overrides as a data URL, empty for none.
	Overrides string
	Labels    map[string]string
	// Manifests are the cluster's, by name, for the host that brings up the control plane; none for others.
	Manifests map[string]string
	// Networks are profiles of NetworkManager, by the names of their files: what the InfraEnv states for the host.
	Networks map[string]string
	// Join is what the host joins a Kubernetes cluster with as a node; nil where its cluster takes no nodes.
	Join *join.Values
	// ControlPlane is what the host runs the control plane of its cluster with: a secret, nil for all other hosts.
	ControlPlane *join.ControlPlane
}

// Render makes the first-boot data of a system: from the template of its image, or from the service's own. An error may quote secrets of the values.
func Render(image agentproto.OSImage, values Values) (data []byte, contentType string, err error) {
	text, contentType := ignition, "application/vnd.coreos.ignition+json"
	if image.FirstBoot == CloudInit {
		text, contentType = cloudInit, "text/cloud-config"
	}
	parsed, err := parse(cmp.Or(image.Template, text))
	if err != nil {
		return nil, "", err
	}
	var out bytes.Buffer
	if err := parsed.Execute(&out, values); err != nil {
		return nil, "", err
	}
	return out.Bytes(), contentType, nil
}

// CheckTemplate is what is wrong with the text of a template, nil for nothing.
func CheckTemplate(text string) error {
	_, err := parse(text)
	return err
}

func parse(text string) (*template.Template, error) {
	return template.New("first boot").Option("missingkey=error").Funcs(functions).Parse(text)
}

// DataURL is a URL that holds its content.
func DataURL(content string) string {
	return "data:;base64," + base64.StdEncoding.EncodeToString([]byte(content))
}

// Lines are the lines of a text that are not empty: an SSH key of a cluster or an InfraEnv may be several, each in a line.
func Lines(text string) []string {
	lines := []string{}
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" {
			lines = append(lines, line)
		}
	}
	return lines
}

// ignition names the host, lets the user in, and tells the service when the system is up.
const ignition = `{
  "ignition": {"version": "3.2.0"{{if .Overrides}}, "config": {"merge": [{"source": {{json .Overrides}}}]}{{end}}},
  "passwd": {"users": [{"name": "core", "sshAuthorizedKeys": {{json (lines .SSHKey)}}}]},
  "storage": {"files": [
    {"path": "/etc/hostname", "mode": 420, "overwrite": true, "contents": {"source": {{json (data .Hostname)}}}},
    {"path": "/etc/muster/host.json", "mode": 384, "overwrite": true, "contents": {"source": {{json (data (host .))}}}}{{if .PullSecret}},
    {"path": {{json pulls}}, "mode": 384, "overwrite": true, "contents": {"source": {{json (data .PullSecret)}}}}{{end}}{{if .Join}},
    {"path": {{json joins}}, "mode": 384, "overwrite": true, "contents": {"source": {{json (data (json .Join))}}}}{{end}}{{if .ControlPlane}},
    {"path": {{json plane}}, "mode": 384, "overwrite": true, "contents": {"source": {{json (data (json .ControlPlane))}}}}{{end}}{{if .Trusted}},
    {"path": {{json anchor}}, "mode": 420, "overwrite": true, "contents": {"source": {{json (data .Trusted)}}}}{{end}}{{range $name, $content := .Manifests}},
    {"path": {{json (print "/opt/openshift/" $name)}}, "mode": 420, "overwrite": true, "contents": {"source": {{json (data $content)}}}}{{end}}{{range $name, $content := .Networks}},
    {"path": {{json (print "/etc/NetworkManager/system-connections/" $name)}}, "mode": 384, "overwrite": true, "contents": {"source": {{json (data $content)}}}}{{end}}
  ]},
  "systemd": {"units": [{"name": "muster-report.service", "enabled": true, "contents": {{json (unit .)}}}]}
}
`

// cloudInit is the same for systems that read cloud-init.
const cloudInit = `#cloud-config
hostname: {{json .Hostname}}
ssh_authorized_keys: {{json (lines .SSHKey)}}
write_files:
- {path: /etc/muster/host.json, permissions: "0600", content: {{json (host .)}}}
{{- if .PullSecret}}
- {path: {{json pulls}}, permissions: "0600", content: {{json .PullSecret}}}
{{- end}}
{{- if .Join}}
- {path: {{json joins}}, permissions: "0600", content: {{json (json .Join)}}}
{{- end}}
{{- if .ControlPlane}}
- {path: {{json plane}}, permissions: "0600", content: {{json (json .ControlPlane)}}}
{{- end}}
{{- range $name, $content := .Manifests}}
- {path: {{json (print "/opt/openshift/" $name)}}, permissions: "0644", content: {{json $content}}}
{{- end}}
{{- if .Trusted}}
ca_certs: {trusted: [{{json .Trusted}}]}
{{- end}}
runcmd:
- [env, {{range proxies .}}{{json .}}, {{end}}sh, -c, {{json (insist (report .))}}]
`

var functions = template.FuncMap{
	"json": func(v any) (string, error) {
		encoded, err := json.Marshal(v)
		return string(encoded), err
	},
	"data":  DataURL,
	"lines": Lines,
	"host": func(v Values) (string, error) {
		facts := map[string]string{"service_url": v.BaseURL, "infra_env_id": v.InfraEnvID, "host_id": v.HostID, "cluster_id": v.ClusterID, "token": v.Token}
		for name, value := range map[string]string{"ca": v.Trusted, "http_proxy": v.Proxy.HTTP, "https_proxy": v.Proxy.HTTPS, "no_proxy": v.Proxy.NoProxy, "ntp_sources": v.NTPSources} {
			if value != "" {
				facts[name] = value
			}
		}
		encoded, err := json.Marshal(facts)
		return string(encoded), err
	},
	"anchor":  func() string { return AnchorPath },
	"joins":   func() string { return join.Path },
	"plane":   func() string { return join.ControlPlanePath },
	"pulls":   func() string { return registriesPath },
	"proxies": proxies,
	"report":  report,
	// cloud-init runs a command once: it has to go on by itself, for an hour, while the network or the service is away.
	"insist": func(command string) string {
		return `n=0; until ` + command + `; do n=$((n+1)); [ $n -lt 360 ] || exit 1; sleep 10; done`
	},
	"unit": func(v Values) string {
		var environment strings.Builder
		for _, p := range proxies(v) {
			environment.WriteString("Environment=" + strconv.Quote(strings.ReplaceAll(p, "%", "%%")) + "\n")
		}
		return "[Unit]\nDescription=Tell that the host is installed\nAfter=network-online.target coreos-update-ca-trust.service\nWants=network-online.target\n\n" +
			"[Service]\nType=oneshot\nRemainAfterExit=yes\n" + environment.String() +
			"ExecStart=/bin/sh -c '" + report(v) + "'\nRestart=on-failure\nRestartSec=10\n\n[Install]\nWantedBy=multi-user.target\n"
	},
}

// Certificates joins bundles of PEM certificates.
func Certificates(bundles ...string) string {
	var all strings.Builder
	for _, bundle := range bundles {
		if bundle = strings.TrimSpace(bundle); bundle != "" {
			all.WriteString(bundle + "\n")
		}
	}
	return all.String()
}

// TimeServers are those of an InfraEnv, which its hosts are asked about, and then those that a cluster adds, with commas between them.
func TimeServers(e *domain.InfraEnv, c *domain.Cluster) string {
	lists := []string{cmp.Or(e.NTPSources, e.AdditionalNTPSources), c.AdditionalNTPSources}
	return strings.Join(slices.DeleteFunc(lists, func(list string) bool { return list == "" }), ",")
}

// proxies are environment variables.
func proxies(v Values) []string {
	var set []string
	for _, p := range []struct{ name, value string }{{"http_proxy", v.Proxy.HTTP}, {"https_proxy", v.Proxy.HTTPS}, {"no_proxy", v.Proxy.NoProxy}} {
		if p.value != "" {
			set = append(set, p.name+"="+p.value)
		}
	}
	return set
}

// report is the shell command that tells the service that the installed system is up. It has no single quotes.
func report(v Values) string {
	return `curl -fsS -X PUT -H "X-Secret-Key: ` + v.Token + `" -H "Content-Type: application/json" -d "{\"current_stage\":\"Done\"}" "` +
		v.BaseURL + `/api/assisted-install/v2/infra-envs/` + v.InfraEnvID + `/hosts/` + v.HostID + `/progress"`
}
