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
	"io/fs"
	"os"
	"path/filepath"
)

// Key reads the Ed25519 key of tokens from a PEM file (PKCS #8), and makes it if there is none. Replicas share one file.
// An empty file is none: it is what a power loss leaves of a key that was not written to the disk yet.
func Key(path string) (ed25519.PrivateKey, error) {
	text, err := os.ReadFile(path)
	if err == nil && len(text) == 0 {
		if err = os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("the key of tokens in %s is empty: %w", path, err)
		}
		err = fs.ErrNotExist
	}
	if errors.Is(err, fs.ErrNotExist) {
		return makeKey(path)
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

func makeKey(path string) (ed25519.PrivateKey, error) {
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("making the key of tokens: %w", err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("making the key of tokens: %w", err)
	}
	err = keep(path, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))
	if errors.Is(err, fs.ErrExist) {
		return Key(path)
	}
	if err != nil {
		return nil, fmt.Errorf("keeping the key of tokens: %w", err)
	}
	return key, nil
}

// keep makes a file that is there as a whole or not at all, also after a power loss. It fails with fs.ErrExist where there is one.
func keep(path string, content []byte) error {
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer dir.Close() //nolint:errcheck // it is only synced
	file, err := os.CreateTemp(dir.Name(), "."+filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	defer os.Remove(file.Name()) //nolint:errcheck // what was kept has another name
	_, err = file.Write(content)
	if err = errors.Join(err, file.Sync(), file.Close()); err != nil {
		return err
	}
	err = os.Link(file.Name(), path) // a rename would replace the key of another replica
	if err != nil && !errors.Is(err, fs.ErrExist) {
		err = create(path, content) // volumes of SMB have no links
	}
	if err != nil {
		return err
	}
	return dir.Sync()
}

// create writes a new file, of which a power loss may leave a part.
func create(path string, content []byte) error {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = file.Write(content)
	return errors.Join(err, file.Sync(), file.Close())
}
