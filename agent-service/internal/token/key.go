// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package token

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// Key reads the Ed25519 key of tokens from a PEM file (PKCS #8), and makes it if there is none. Replicas share one file.
// An empty file is none: it is what a power loss leaves of a key that was not written to the disk yet, or another replica is about to write it.
func Key(path string) (ed25519.PrivateKey, error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) || err == nil && len(text) == 0 {
		text, err = makeKey(path)
	}
	if err != nil {
		return nil, fmt.Errorf("reading the key of tokens: %w", err)
	}
	block, _ := pem.Decode(text)
	if block == nil {
		return nil, fmt.Errorf("the key of tokens in %s is not PEM", path)
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("the key of tokens in %s cannot be read", path)
	}
	key, ok := parsed.(ed25519.PrivateKey)
	if !ok {
		return nil, fmt.Errorf("the key of tokens in %s is not an Ed25519 key", path)
	}
	return key, nil
}

// makeKey returns what the file has then: the key of another replica, where that was sooner.
func makeKey(path string) ([]byte, error) {
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, err
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	return keep(path, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))
}

// keep makes a file that is there as a whole or not at all, also after a power loss. It returns what the file has, which is other content where there was some.
func keep(path string, content []byte) ([]byte, error) {
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return nil, err
	}
	defer dir.Close() //nolint:errcheck // it is only synced
	file, err := os.CreateTemp(dir.Name(), "."+filepath.Base(path)+".*")
	if err != nil {
		return nil, err
	}
	defer os.Remove(file.Name()) //nolint:errcheck // what was kept has another name
	_, err = file.Write(content)
	if err = errors.Join(err, file.Sync(), file.Close()); err != nil {
		return nil, err
	}
	if os.Link(file.Name(), path) != nil { // it is there, or there are no links, as on volumes of SMB
		content, err = fill(path, content)
	}
	return content, errors.Join(err, dir.Sync())
}

// fill writes a file that is not there or is empty, of which a power loss may leave a part, and returns what it has. It never removes one: another replica may have written it a moment ago.
func fill(path string, content []byte) (kept []byte, err error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	_ = syscall.Flock(int(file.Fd()), syscall.LOCK_EX) // a volume without locks is no reason to have no key
	if kept, err = io.ReadAll(file); err != nil || len(kept) > 0 {
		return kept, err
	}
	_, err = file.Write(content)
	return content, errors.Join(err, file.Sync())
}
