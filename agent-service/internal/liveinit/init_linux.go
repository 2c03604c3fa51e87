// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package liveinit is the first process of Muster's own live image: it mounts what the kernel has, loads drivers, gets addresses, puts the files of
// the discovery ignition in place, and keeps the agent running. In the system that is installed from the same parts it reads the first-boot data from the disk
// and reports that the system is up.
package liveinit

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const (
	ignitionPath = "/config.ign"
	// modulesPath lists drivers by path, in the order in which they can be loaded.
	modulesPath = "/etc/modules"
	agentPath   = "/usr/bin/agent"
	// environmentPath has a setting of the agent on each line: AGENT_URL=…
	environmentPath = "/etc/muster/agent.env"
	// hostPath is what first-boot data says to an installed system about itself.
	hostPath = "/etc/muster/host.json"
	// addressPatience is how long the agent waits for a first address, and an installed system for its disk.
	addressPatience = 60 * time.Second
	// pause is between two starts of an agent that ends.
	pause = 5 * time.Second
)

// Run never returns.
func Run() {
	say("Muster's live image starts")
	for _, step := range []func() error{mounts, modules, disk, ignition, hostname} {
		if err := step(); err != nil {
			say("%v", err)
		}
	}
	configured := make(chan string, 16)
	go statedNetworks(configured).configureAll()
	select {
	case address := <-configured:
		say("this machine has the address %s", address)
	case <-time.After(addressPatience):
		say("no address yet; the agent starts anyway")
	}
	if installed() {
		report()
	}
	go KeepClock(timeSources(settings()))
	rest()
	for {
		say("the agent starts")
		say("the agent ended (%v)", agent())
		time.Sleep(pause) //nolint:forbidigo // nothing tells when the agent can go on
	}
}

// report tells the stages of an installed system at its first boot, and never returns: this system has nothing else to do.
func report() {
	if _, err := os.Stat(reportedPath); err == nil {
		say("this system is installed")
		select {}
	}
	for _, stage := range []string{"Configuring", "Joined", "Done"} {
		for {
			err := agent("--host-file="+hostPath, "--report="+stage)
			if err == nil {
				say("reported %s", stage)
				break
			}
			say("reporting %s: %v", stage, err)
			time.Sleep(pause) //nolint:forbidigo // nothing tells when the agent can go on
		}
	}
	if err := os.WriteFile(reportedPath, nil, 0o600); err != nil {
		say("%v", err)
	}
	select {}
}

func say(format string, values ...any) {
	fmt.Printf("live: "+format+"\n", values...)
}

func mounts() error {
	var errs []error
	for _, m := range []struct{ kind, at string }{{"proc", "/proc"}, {"sysfs", "/sys"}, {"devtmpfs", "/dev"}, {"tmpfs", "/run"}, {"tmpfs", "/tmp"}, {"efivarfs", "/sys/firmware/efi/efivars"}} {
		if m.kind == "efivarfs" {
			if _, err := os.Stat(m.at); err != nil {
				continue
			}
		}
		if err := os.MkdirAll(m.at, 0o755); err != nil { //nolint:gosec // world-readable
			errs = append(errs, err)
		}
		if err := unix.Mount(m.kind, m.at, m.kind, 0, ""); err != nil && !errors.Is(err, unix.EBUSY) {
			errs = append(errs, fmt.Errorf("mounting %s: %w", m.at, err))
		}
	}
	return errors.Join(errs...)
}

// modules loads all drivers of the image.
func modules() error { return LoadModules(modulesPath) }

// LoadModules loads the drivers of a list of paths, in its order. Those for hardware that is not there do nothing.
func LoadModules(listPath string) error {
	list, err := os.ReadFile(listPath)
	if err != nil {
		return err
	}
	var errs []error
	for path := range strings.FieldsSeq(string(list)) {
		if err := load(path); err != nil && !errors.Is(err, unix.EEXIST) && !errors.Is(err, unix.ENODEV) {
			errs = append(errs, fmt.Errorf("loading %s: %w", filepath.Base(path), err))
		}
	}
	return errors.Join(errs...)
}

func load(path string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	return unix.FinitModule(int(file.Fd()), "", 0)
}

// ignition puts the files of the discovery ignition in place; the rest of it is for other live images.
func ignition() error {
	path, what := ignitionPath, "this image carries no InfraEnv"
	if installed() {
		path, what = firstBootPath, "this disk has no first-boot data"
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	files, err := Files(data)
	if err != nil {
		return err
	}
	return files.Write()
}

// File is one that ignition describes.
type File struct {
	Content []byte
	Mode    os.FileMode
}

// FileSet are files by their absolute paths.
type FileSet map[string]File

// Write puts the files in place.
func (f FileSet) Write() error {
	for path, one := range f {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil { //nolint:gosec // world-readable
			return err
		}
		if err := os.WriteFile(path, one.Content, one.Mode); err != nil {
			return err
		}
	}
	return nil
}

// maxMerged bounds how many configurations are merged into each other.
const maxMerged = 16

// ignitionConfig is the part of ignition that is understood.
type ignitionConfig struct {
	Ignition struct {
		Config struct {
			Merge []ignitionSource `json:"merge"`
		} `json:"config"`
	} `json:"ignition"`
	Storage struct {
		Files []struct {
			Path     string         `json:"path"`
			Mode     int            `json:"mode"`
			Contents ignitionSource `json:"contents"`
		} `json:"files"`
	} `json:"storage"`
}

// ignitionSource is where content is.
type ignitionSource struct {
	Source      string `json:"source"`
	Compression string `json:"compression"`
}

func (s ignitionSource) content() ([]byte, error) {
	if s.Compression != "" {
		return nil, fmt.Errorf("the compression %q is not understood", s.Compression)
	}
	return dataURL(s.Source)
}

// Files returns the files that an ignition configuration describes by data URLs. Those of configurations that it merges have
// precedence. The rest of it is ignored.
func Files(ignition []byte) (FileSet, error) { return mergedFiles(ignition, maxMerged) }

func mergedFiles(data []byte, depth int) (FileSet, error) {
	var config ignitionConfig
	if err := json.Unmarshal(data, &config); err != nil {
		return nil, fmt.Errorf("reading the ignition: %w", err)
	}
	files := FileSet{}
	for _, f := range config.Storage.Files {
		content, err := f.Contents.content()
		if err != nil {
			return nil, fmt.Errorf("reading the ignition of %s: %w", f.Path, err)
		}
		if !filepath.IsAbs(f.Path) {
			return nil, fmt.Errorf("the ignition has a file with the path %q", f.Path)
		}
		mode := os.FileMode(f.Mode) & os.ModePerm //nolint:gosec // is masked
		if mode == 0 {
			mode = 0o644
		}
		files[filepath.Clean(f.Path)] = File{content, mode}
	}
	for _, source := range config.Ignition.Config.Merge {
		if depth == 0 {
			return nil, errors.New("reading the ignition: it merges too many configurations into each other")
		}
		content, err := source.content()
		if err != nil {
			return nil, fmt.Errorf("reading the ignition that is merged: %w", err)
		}
		merged, err := mergedFiles(content, depth-1)
		if err != nil {
			return nil, err
		}
		maps.Copy(files, merged)
	}
	return files, nil
}

func dataURL(source string) ([]byte, error) {
	rest, ok := strings.CutPrefix(source, "data:")
	head, body, comma := strings.Cut(rest, ",")
	if !ok || !comma {
		return nil, errors.New("it is no data URL")
	}
	if strings.HasSuffix(head, ";base64") {
		return base64.StdEncoding.DecodeString(body)
	}
	text, err := url.PathUnescape(body)
	return []byte(text), err
}

// hostname names the machine as the ignition says.
func hostname() error {
	name, err := os.ReadFile("/etc/hostname")
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return errors.Join(err, unix.Sethostname(bytes.TrimSpace(name)))
}

func agent(arguments ...string) error {
	command := exec.Command(agentPath, arguments...) //nolint:noctx // lives as long as the machine
	command.Stdout, command.Stderr = os.Stdout, os.Stderr
	command.Env = append([]string{"PATH=/usr/bin:/bin", "HOME=/"}, settings()...)
	return command.Run()
}

// settings are the agent's, each NAME=value.
func settings() []string {
	var found []string
	if content, err := os.ReadFile(environmentPath); err == nil {
		for line := range bytes.Lines(content) {
			found = append(found, strings.TrimSpace(string(line)))
		}
	}
	return found
}
