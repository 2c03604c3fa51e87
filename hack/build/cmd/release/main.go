// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Command release assembles a release from staged file systems, and publishes one.
//
//	release contents -version V -dist DIR [-images DIR] [-archives DIR] [-programs DIR] [-tag NAME=TAG]...
//	                               OCI layouts, archives and programs of staged file systems, their SBOMs, provenance, licences
//	release krew V DIST MANIFEST   the manifest for krew, to standard output
//	release notes V CHANGELOG      what changed, to standard output
//	release checksums DIST         SHA256SUMS
//	release push DIST REGISTRY     images to a registry; prints their digests
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/muster-io/muster/hack/build/release"
)

const repository = "https://github.com/muster-io/muster"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) == 0 {
		return errors.New("name a command: contents, krew, notes, checksums or push")
	}
	switch command, args := args[0], args[1:]; {
	case command == "contents":
		return contents(ctx, args)
	case command == "krew" && len(args) == 3:
		return krew(args[0], args[1], args[2])
	case command == "notes" && len(args) == 2:
		return notes(args[0], args[1])
	case command == "checksums" && len(args) == 1:
		return release.Checksums(args[0])
	case command == "push" && len(args) == 2:
		pushed, err := release.Push(args[0], args[1], remote.WithContext(ctx), remote.WithAuthFromKeychain(authn.DefaultKeychain))
		for _, reference := range pushed {
			fmt.Println(reference)
		}
		return err
	default:
		return fmt.Errorf("%s does not take these arguments: see the head of its source", command)
	}
}

func notes(version, changelog string) error {
	text, err := os.ReadFile(changelog) //nolint:gosec // the user names it
	if err != nil {
		return err
	}
	section, err := release.Notes(string(text), version)
	fmt.Print(section)
	return err
}

func krew(version, dist, manifest string) error {
	text, err := os.ReadFile(manifest) //nolint:gosec // the user names it
	if err != nil {
		return err
	}
	filled, err := release.Krew(text, dist, version)
	fmt.Print(string(filled))
	return err
}

func contents(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("contents", flag.ContinueOnError)
	version, dist := flags.String("version", "", "version of the release"), flags.String("dist", "", "directory to write to")
	staged := flags.String("images", "", "directory of file systems of images, as hack/images/build --stage makes it")
	archives, programs := flags.String("archives", "", "directory of programs that users get as archives"), flags.String("programs", "", "directory of programs that users get as they are")
	tags := map[string]string{}
	flags.Func("tag", "NAME=TAG of an image that does not have the version of the release", func(s string) error {
		name, tag, found := strings.Cut(s, "=")
		if tags[name] = tag; !found {
			return fmt.Errorf("%q is not NAME=TAG", s)
		}
		return nil
	})
	if err := flags.Parse(args); err != nil {
		return err
	}
	images, err := stageImages(*staged, *version, tags)
	if err != nil {
		return err
	}
	downloads, err := stagePrograms(*archives, *programs)
	if err != nil {
		return err
	}
	build, err := describe(ctx, *version)
	if err != nil {
		return err
	}
	from, err := sources(ctx)
	if err != nil {
		return err
	}
	return build.Write(*dist, images, downloads, from)
}

func stageImages(dir, version string, tags map[string]string) ([]release.Image, error) {
	if dir == "" {
		return nil, nil
	}
	staged, err := release.Stage(dir, version)
	for i := range staged {
		if tag := tags[staged[i].Name]; tag != "" {
			staged[i].Tag = tag
		}
	}
	return staged, err
}

func stagePrograms(archives, programs string) ([]release.Program, error) {
	var out []release.Program
	for dir, packed := range map[string]bool{archives: true, programs: false} {
		if dir == "" {
			continue
		}
		found, err := release.StagePrograms(dir, packed)
		if err != nil {
			return nil, err
		}
		out = append(out, found...)
	}
	return out, nil
}

func describe(ctx context.Context, version string) (release.Build, error) {
	build := release.Build{Version: version, Repository: repository, Builder: repository + "/blob/main/hack/release"}
	if run := os.Getenv("GITHUB_RUN_ID"); run != "" {
		build.Builder = repository + "/actions/runs/" + run
	}
	out, err := output(ctx, "git", "log", "-1", "--format=%H %ct")
	if err != nil {
		return build, err
	}
	commit, seconds, _ := strings.Cut(out, " ")
	at, err := strconv.ParseInt(seconds, 10, 64)
	build.Commit, build.Time = commit, time.Unix(at, 0)
	return build, err
}

func sources(ctx context.Context) (release.Sources, error) {
	out, err := output(ctx, "go", "env", "GOMODCACHE", "GOROOT")
	if err != nil {
		return release.Sources{}, err
	}
	modules, goroot, _ := strings.Cut(out, "\n")
	cache, err := os.UserCacheDir()
	return release.Sources{Modules: modules, Goroot: goroot, Debian: filepath.Join(cache, "muster", "live", "root")}, err
}

func output(ctx context.Context, name string, args ...string) (string, error) {
	out, err := exec.CommandContext(ctx, name, args...).Output()
	if err != nil {
		return "", fmt.Errorf("running %s: %w", name, err)
	}
	return strings.TrimSpace(string(out)), nil
}
