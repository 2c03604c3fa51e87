// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package assets holds the files that pages of the console load.
package assets

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"mime"
	"path"
)

//go:embed *.css *.js *.svg *.txt
var files embed.FS

// Asset is a file that pages load.
type Asset struct {
	// Kind is its content type.
	Kind    string
	Content []byte
}

// Read returns the files by their names.
func Read() (map[string]Asset, error) {
	entries, err := files.ReadDir(".")
	if err != nil {
		return nil, fmt.Errorf("listing assets: %w", err)
	}
	found := map[string]Asset{}
	for _, entry := range entries {
		content, err := files.ReadFile(entry.Name())
		if err != nil {
			return nil, fmt.Errorf("reading an asset: %w", err)
		}
		found[entry.Name()] = Asset{mime.TypeByExtension(path.Ext(entry.Name())), content}
	}
	return found, nil
}

// Sum is the checksum of a content, SHA-256 in hexadecimal digits.
func Sum(content []byte) string {
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:])
}

// Path is the address of a file below the address of the console; it changes with the content, so that browsers may keep it.
func Path(base, name string) (string, error) {
	content, err := files.ReadFile(name)
	if err != nil {
		return "", fmt.Errorf("reading an asset: %w", err)
	}
	return base + "/assets/" + name + "?v=" + Sum(content)[:12], nil
}
