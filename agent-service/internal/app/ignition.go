// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"archive/tar"
	"bytes"
	"cmp"
	_ "embed"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/muster-io/muster/agent-service/internal/domain"
	"github.com/muster-io/muster/agent-service/internal/firstboot"
	"github.com/muster-io/muster/agent-service/internal/hardware"
	"github.com/muster-io/muster/agent-service/internal/nmstate"
)

// Units that start the agent in live images that have none, such as those of CoreOS. Our own live image starts it by itself, and has no systemd.
var (
	//go:embed coreos/agent.service
	agentUnit string
	//go:embed coreos/fetch-agent
	fetchAgent string
	//go:embed coreos/muster-network.service
	networkUnit string
	//go:embed coreos/install-network
	installNetwork string
)

// ignition is the configuration of the discovery system: who it belongs to, where the service is, and what the user stated.
func (d *discovery) ignition(env *domain.InfraEnv) ([]byte, error) {
	credential, err := d.authority.ForImage(env.ID, env.Generations)
	if err != nil {
		return nil, fmt.Errorf("signing the token of the image: %w", err)
	}
	program, _, err := d.programs.sum(env.CPUArchitecture)
	if err != nil {
		return nil, err
	}
	settings := []string{
		"AGENT_URL=" + d.base, "AGENT_INFRA_ENV_ID=" + env.ID, "AGENT_TOKEN_FILE=/etc/muster/token", "AGENT_ARCH=" + hardware.Architecture(env.CPUArchitecture), "AGENT_SHA256=" + program,
	}
	files := []any{ignitionFile("/etc/muster/token", credential, 0o600), ignitionFile("/usr/local/bin/fetch-agent", fetchAgent, 0o755)}
	trusted := firstboot.Certificates(d.authorities, env.AdditionalTrustBundle, env.MirrorRegistryCA)
	for _, optional := range []struct{ setting, path, content string }{
		{"AGENT_PULL_SECRET_FILE", "/etc/muster/pull-secret.json", env.PullSecret},
		{"AGENT_CA_FILE", "/etc/muster/ca.pem", trusted},
		{"", firstboot.AnchorPath, trusted},
		{"AGENT_NTP_SOURCES", "", cmp.Or(env.NTPSources, env.AdditionalNTPSources)},
		{"HTTP_PROXY", "", env.Proxy.HTTP},
		{"HTTPS_PROXY", "", env.Proxy.HTTPS},
		{"NO_PROXY", "", env.Proxy.NoProxy},
		{"", "/etc/containers/registries.conf", env.MirrorRegistry},
		{"", "/etc/muster/network.json", string(env.StaticNetworkConfig)},
	} {
		value := optional.content
		if value == "" {
			continue
		}
		if optional.path != "" {
			files = append(files, ignitionFile(optional.path, value, 0o600))
			value = optional.path
		}
		if optional.setting != "" {
			settings = append(settings, optional.setting+"="+value)
		}
	}
	files = append(files, ignitionFile("/etc/muster/agent.env", strings.Join(settings, "\n")+"\n", 0o600))
	head := map[string]any{"version": "3.1.0"}
	if env.IgnitionConfigOverride != "" {
		head["config"] = map[string]any{"merge": []any{map[string]any{"source": firstboot.DataURL(env.IgnitionConfigOverride)}}}
	}
	units := []any{ignitionUnit("agent.service", agentUnit)}
	if len(env.StaticNetworkConfig) > 0 {
		profiles, err := networks(env.StaticNetworkConfig)
		if err != nil {
			return nil, err
		}
		files, units = append(files, profiles...), append(units, ignitionUnit("muster-network.service", networkUnit))
	}
	config := map[string]any{"ignition": head, "storage": map[string]any{"files": files}, "systemd": map[string]any{"units": units}}
	if keys := firstboot.Lines(env.SSHAuthorizedKey); len(keys) > 0 {
		config["passwd"] = map[string]any{"users": []any{map[string]any{"name": "core", "sshAuthorizedKeys": keys}}}
	}
	return json.Marshal(config)
}

// networks are what install-network chooses from: for each machine that a network is stated for, its cards and profiles of NetworkManager. The machine reports a part that
// cannot be used; the other machines have theirs.
func networks(config json.RawMessage) ([]any, error) {
	statements, err := nmstate.Read(config)
	if err != nil {
		return nil, err
	}
	files := []any{ignitionFile("/usr/local/bin/install-network", installNetwork, 0o755)}
	for n, statement := range statements {
		directory := fmt.Sprintf("/etc/muster/network/%04d/", n) // in the order that a shell lists them in
		var cards, ignored strings.Builder
		for _, card := range statement.Cards {
			cards.WriteString(strings.ToLower(card.MAC) + " " + card.Name + "\n")
		}
		files = append(files, ignitionFile(directory+"cards", cards.String(), 0o600))
		found, err := statement.Keyfiles()
		if err != nil {
			ignored.WriteString("the stated network cannot be used: " + err.Error() + "\n")
		}
		for _, i := range found.Ignored {
			ignored.WriteString("not understood and left out: " + i + "\n")
		}
		if ignored.Len() > 0 {
			files = append(files, ignitionFile(directory+"ignored", ignored.String(), 0o600))
		}
		for _, name := range slices.Sorted(maps.Keys(found.Files)) {
			files = append(files, ignitionFile(directory+name, found.Files[name], 0o600))
		}
	}
	return files, nil
}

// staticNetworkArchive is the tar that clients of assisted-service download: for each machine that a network is stated for, its cards and profiles of NetworkManager.
func staticNetworkArchive(config json.RawMessage) ([]byte, error) {
	var statements []nmstate.Statement
	if len(config) > 0 {
		var err error
		if statements, err = nmstate.Read(config); err != nil {
			return nil, err
		}
	}
	var out bytes.Buffer
	archive := tar.NewWriter(&out)
	put := func(name, content string) error {
		if err := archive.WriteHeader(&tar.Header{Name: "/etc/assisted/network/" + name, Size: int64(len(content)), Mode: 0o600}); err != nil {
			return fmt.Errorf("packing the static network: %w", err)
		}
		_, err := archive.Write([]byte(content))
		return err
	}
	for n, statement := range statements {
		directory := fmt.Sprintf("host%d/", n)
		var cards strings.Builder
		for _, card := range statement.Cards {
			cards.WriteString(strings.ToLower(card.MAC) + "=" + card.Name + "\n")
		}
		files := map[string]string{"mac_interface.ini": cards.String()}
		if found, err := statement.Keyfiles(); err == nil {
			maps.Copy(files, found.Files)
		} else {
			files["network.yaml"] = statement.YAML // what cannot be rendered is shown as it is stated
		}
		for _, name := range slices.Sorted(maps.Keys(files)) {
			if err := put(directory+name, files[name]); err != nil {
				return nil, err
			}
		}
	}
	if err := archive.Close(); err != nil {
		return nil, fmt.Errorf("packing the static network: %w", err)
	}
	return out.Bytes(), nil
}

func ignitionUnit(name, contents string) map[string]any {
	return map[string]any{"name": name, "enabled": true, "contents": contents}
}

func ignitionFile(path, content string, mode int) map[string]any {
	return map[string]any{"path": path, "mode": mode, "overwrite": true, "contents": map[string]any{"source": firstboot.DataURL(content)}}
}
