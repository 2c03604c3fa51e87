// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package service

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"text/template"

	"github.com/muster-io/muster/agent-service/internal/agentproto"
	"github.com/muster-io/muster/agent-service/internal/domain"
	"github.com/muster-io/muster/agent-service/internal/hardware"
	"github.com/muster-io/muster/agent-service/internal/lifecycle"
	"github.com/muster-io/muster/agent-service/internal/validate"
)

// image is what a host of a cluster writes: that of the cluster's version, whatever the discovery image has.
func (s *Service) image(c *domain.Cluster, h *domain.Host) (agentproto.OSImage, error) {
	architecture := c.CPUArchitecture
	if architecture == hardware.Mixed {
		architecture = cmp.Or(h.Summary.CPUArchitecture, architecture)
	}
	for _, image := range s.OSImages {
		if image.Version == c.OpenshiftVersion && (image.CPUArchitecture == "" || hardware.Architecture(image.CPUArchitecture) == hardware.Architecture(architecture)) {
			return image, nil
		}
	}
	return agentproto.OSImage{}, domain.Refuse(domain.Conflict, "OSImageUnknown", "there is no image of version %q for %s: configure one (--os-images), or choose another version", c.OpenshiftVersion, architecture)
}

// cloudInit is the FirstBoot of images that read it.
const cloudInit = "cloud-init"

// installStep is the instruction to write the image.
func (s *Service) installStep(ctx context.Context, h *domain.Host, c *domain.Cluster) (string, error) {
	image, err := s.image(c, h)
	if err != nil {
		return "", err
	}
	disk, _ := validate.Disk(s.subject(h), s.Minimums)
	args := agentproto.InstallArgs{
		InfraEnvID: h.InfraEnvID, HostID: h.HostID, ClusterID: c.ID, Role: h.Role, Hostname: h.Hostname(), Device: disk.Path, Image: image,
		FirstBootURL: "/api/assisted-install/v2/infra-envs/" + h.InfraEnvID + "/hosts/" + h.HostID + "/first-boot", SkipDisks: h.SkipFormattingDisks,
	}
	if h.InstallerArgs != "" {
		if err := json.Unmarshal([]byte(h.InstallerArgs), &args.InstallerArgs); err != nil {
			return "", domain.Refuse(domain.Conflict, "InstallerArgsInvalid", "installer_args of host %s is not a JSON list of strings", h.HostID)
		}
	}
	if args.NetworkConfig, err = s.networkConfig(ctx, h, image); err != nil {
		return "", err
	}
	step, err := json.Marshal(args)
	if err != nil {
		return "", fmt.Errorf("encoding the install step: %w", err)
	}
	return string(step), nil
}

// firstBootValues are what templates of first-boot data can use.
type firstBootValues struct {
	Hostname, Role, HostID, InfraEnvID, ClusterID, ClusterName, BaseDomain, SSHKey, BaseURL, Token string
	// Trusted are PEM certificates that the system trusts beside its own.
	Trusted string
	// Proxy is how the system reaches the network.
	Proxy domain.Proxy
	// PullSecret is the cluster's, for what runs on the system: a secret as the token is.
	PullSecret string
	// Overrides is the host's ignition_config_overrides as a data URL, empty for none.
	Overrides string
	Labels    map[string]string
	// Manifests are the cluster's, by name, for the host that brings up the control plane; none for others.
	Manifests map[string]string
	// Networks are profiles of NetworkManager, by the names of their files: what the InfraEnv states for the host.
	Networks map[string]string
}

// defaultIgnition names the host, lets the user in, and tells the service when the system is up.
const defaultIgnition = `{
  "ignition": {"version": "3.2.0"{{if .Overrides}}, "config": {"merge": [{"source": {{json .Overrides}}}]}{{end}}},
  "passwd": {"users": [{"name": "core", "sshAuthorizedKeys": [{{if .SSHKey}}{{json .SSHKey}}{{end}}]}]},
  "storage": {"files": [
    {"path": "/etc/hostname", "mode": 420, "overwrite": true, "contents": {"source": {{json (data .Hostname)}}}},
    {"path": "/etc/muster/host.json", "mode": 384, "overwrite": true, "contents": {"source": {{json (data (host .))}}}}{{if .PullSecret}},
    {"path": {{json pulls}}, "mode": 384, "overwrite": true, "contents": {"source": {{json (data .PullSecret)}}}}{{end}}{{if .Trusted}},
    {"path": {{json anchor}}, "mode": 420, "overwrite": true, "contents": {"source": {{json (data .Trusted)}}}}{{end}}{{range $name, $content := .Manifests}},
    {"path": {{json (print "/opt/openshift/" $name)}}, "mode": 420, "overwrite": true, "contents": {"source": {{json (data $content)}}}}{{end}}{{range $name, $content := .Networks}},
    {"path": {{json (print "/etc/NetworkManager/system-connections/" $name)}}, "mode": 384, "overwrite": true, "contents": {"source": {{json (data $content)}}}}{{end}}
  ]},
  "systemd": {"units": [{"name": "muster-report.service", "enabled": true, "contents": {{json (unit .)}}}]}
}
`

// defaultCloudInit is the same for systems that read cloud-init.
const defaultCloudInit = `#cloud-config
hostname: {{json .Hostname}}
ssh_authorized_keys: [{{if .SSHKey}}{{json .SSHKey}}{{end}}]
write_files:
- {path: /etc/muster/host.json, permissions: "0600", content: {{json (host .)}}}
{{- if .PullSecret}}
- {path: {{json pulls}}, permissions: "0600", content: {{json .PullSecret}}}
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

var firstBootFunctions = template.FuncMap{
	"json": func(v any) (string, error) {
		encoded, err := json.Marshal(v)
		return string(encoded), err
	},
	"data": func(s string) string { return "data:;base64," + base64.StdEncoding.EncodeToString([]byte(s)) },
	"host": func(v firstBootValues) (string, error) {
		facts := map[string]string{"service_url": v.BaseURL, "infra_env_id": v.InfraEnvID, "host_id": v.HostID, "cluster_id": v.ClusterID, "token": v.Token}
		for name, value := range map[string]string{"ca": v.Trusted, "http_proxy": v.Proxy.HTTP, "https_proxy": v.Proxy.HTTPS, "no_proxy": v.Proxy.NoProxy} {
			if value != "" {
				facts[name] = value
			}
		}
		encoded, err := json.Marshal(facts)
		return string(encoded), err
	},
	"anchor":  func() string { return AnchorPath },
	"pulls":   func() string { return registriesPath },
	"proxies": proxies,
	"report":  report,
	// cloud-init runs a command once: it has to go on by itself, for an hour, while the network or the service is away.
	"insist": func(command string) string {
		return `n=0; until ` + command + `; do n=$((n+1)); [ $n -lt 360 ] || exit 1; sleep 10; done`
	},
	"unit": func(v firstBootValues) string {
		var environment strings.Builder
		for _, p := range proxies(v) {
			environment.WriteString("Environment=" + strconv.Quote(strings.ReplaceAll(p, "%", "%%")) + "\n")
		}
		return "[Unit]\nDescription=Tell that the host is installed\nAfter=network-online.target coreos-update-ca-trust.service\nWants=network-online.target\n\n" +
			"[Service]\nType=oneshot\nRemainAfterExit=yes\n" + environment.String() +
			"ExecStart=/bin/sh -c '" + report(v) + "'\nRestart=on-failure\nRestartSec=10\n\n[Install]\nWantedBy=multi-user.target\n"
	},
}

// registriesPath is where the kubelet of every distribution looks for credentials of registries.
const registriesPath = "/var/lib/kubelet/config.json"

// ParseTemplate reads a template of first-boot data.
func ParseTemplate(text string) (*template.Template, error) {
	return template.New("first boot").Option("missingkey=error").Funcs(firstBootFunctions).Parse(text)
}

// AnchorPath is where CoreOS and its relatives look for certificates to trust.
const AnchorPath = "/etc/pki/ca-trust/source/anchors/muster.pem"

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

// proxies are environment variables.
func proxies(v firstBootValues) []string {
	var set []string
	for _, p := range []struct{ name, value string }{{"http_proxy", v.Proxy.HTTP}, {"https_proxy", v.Proxy.HTTPS}, {"no_proxy", v.Proxy.NoProxy}} {
		if p.value != "" {
			set = append(set, p.name+"="+p.value)
		}
	}
	return set
}

// report is the shell command that tells the service that the installed system is up. It has no single quotes.
func report(v firstBootValues) string {
	return `curl -fsS -X PUT -H "X-Secret-Key: ` + v.Token + `" -H "Content-Type: application/json" -d "{\"current_stage\":\"Done\"}" "` +
		v.BaseURL + `/api/assisted-install/v2/infra-envs/` + v.InfraEnvID + `/hosts/` + v.HostID + `/progress"`
}

// FirstBoot implements Agents.
func (s *Service) FirstBoot(ctx context.Context, key domain.HostKey) ([]byte, string, error) {
	var h *domain.Host
	var c *domain.Cluster
	values := firstBootValues{Trusted: s.Authorities}
	var stated network
	err := s.view(ctx, func(ctx context.Context, r Reader) (err error) {
		if h, err = r.Host(ctx, key); err != nil {
			return err
		}
		if h == nil {
			return domain.RefuseUnknown("Host", key.HostID)
		}
		if h.State != lifecycle.Installing && h.State != lifecycle.InstallingInProgress {
			return domain.Refuse(domain.Conflict, "HostNotInstalling", "host %s is %s: first-boot data is given out during the installation only", key.HostID, h.State)
		}
		c, err = r.Cluster(ctx, h.ClusterID)
		if err == nil && c == nil {
			return domain.RefuseUnknown("Cluster", h.ClusterID)
		}
		if err == nil && h.Bootstrap {
			values.Manifests, err = manifestsOf(ctx, r, c.ID)
		}
		if err != nil {
			return err
		}
		e, err := r.InfraEnv(ctx, key.InfraEnvID)
		if err != nil || e == nil {
			return err
		}
		values.Trusted = Certificates(s.Authorities, e.AdditionalTrustBundle)
		image, err := s.image(c, h)
		if err == nil {
			stated, err = networkOf(ctx, r, e, key, image)
		}
		return err
	})
	if err == nil && stated.ignored != "" {
		err = s.update(ctx, func(_ context.Context, w *work) error {
			w.tell(h, h.ClusterID, domain.Warning, "host_static_network_ignored", true, "Host %s: the network that is stated for the installed system: %s", h.FreeLabel(), stated.ignored)
			return nil
		})
	}
	if err != nil {
		return nil, "", err
	}
	values.Networks = stated.profiles
	return s.renderFirstBoot(ctx, h, c, values)
}

func manifestsOf(ctx context.Context, r Reader, clusterID string) (map[string]string, error) {
	files, err := r.Files(ctx, clusterID)
	manifests := map[string]string{}
	for _, f := range files {
		if err == nil && isManifest(f.Name) {
			var content []byte
			content, err = r.File(ctx, clusterID, f.Name)
			manifests[f.Name] = string(content)
		}
	}
	return manifests, err
}

func (s *Service) renderFirstBoot(ctx context.Context, h *domain.Host, c *domain.Cluster, values firstBootValues) ([]byte, string, error) {
	image, err := s.image(c, h)
	if err != nil {
		return nil, "", err
	}
	text, contentType := defaultIgnition, "application/vnd.coreos.ignition+json"
	if image.FirstBoot == cloudInit {
		text, contentType = defaultCloudInit, "text/cloud-config"
	}
	values.Hostname, values.Role, values.HostID, values.InfraEnvID, values.Labels = h.Hostname(), h.Role, h.HostID, h.InfraEnvID, h.NodeLabels
	values.ClusterID, values.ClusterName, values.BaseDomain, values.SSHKey, values.Proxy = c.ID, c.Name, c.BaseDNSDomain, c.SSHPublicKey, c.Proxy
	values.BaseURL, values.PullSecret = s.BaseURL, c.PullSecret
	if h.IgnitionConfigOverrides != "" {
		values.Overrides = "data:;base64," + base64.StdEncoding.EncodeToString([]byte(h.IgnitionConfigOverrides))
	}
	if s.HostToken != nil {
		if values.Token, err = s.HostToken(ctx, h); err != nil {
			return nil, "", fmt.Errorf("making a token for host %s: %w", h.HostKey, err)
		}
	}
	var out bytes.Buffer
	parsed, err := ParseTemplate(cmp.Or(image.Template, text))
	if err != nil || parsed.Execute(&out, values) != nil { // the error may quote secrets
		return nil, "", domain.Refuse(domain.Conflict, "FirstBootInvalid", "the template of the first-boot data of version %s cannot be filled in: its administrator has to mend it", c.OpenshiftVersion)
	}
	return out.Bytes(), contentType, nil
}
