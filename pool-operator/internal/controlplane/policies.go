// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// NewEncryption returns an EncryptionConfiguration with a new key: the API server encrypts Secrets in etcd with it.
func NewEncryption() ([]byte, error) {
	secret := make([]byte, 32)
	if _, err := rand.Read(secret); err != nil {
		return nil, fmt.Errorf("generating a key for Secrets: %w", err)
	}
	return fmt.Appendf(nil, `apiVersion: apiserver.config.k8s.io/v1
kind: EncryptionConfiguration
resources:
- resources: [secrets]
  providers:
  - secretbox:
      keys:
      - {name: first, secret: %s}
  - identity: {}
`, base64.StdEncoding.EncodeToString(secret)), nil
}

// AuditPolicy returns a Policy by which the API server logs every request at the level.
func AuditPolicy(level string) []byte {
	return fmt.Appendf(nil, "apiVersion: audit.k8s.io/v1\nkind: Policy\nomitStages: [RequestReceived]\nrules:\n- level: %s\n", level)
}

// writePolicies writes the API server's configuration files: how Secrets are encrypted, and what is audited.
func (c configuration) writePolicies() error {
	if err := c.ensureEncryption(); err != nil || c.options.Audit == "" {
		return err
	}
	return c.dir.write(c.dir.auditPolicy(), AuditPolicy(c.options.Audit))
}

// ensureEncryption makes the key before there are data that it could be missing for.
func (c configuration) ensureEncryption() error {
	if !c.options.EncryptSecrets || c.dir.encrypted() {
		return nil
	}
	if _, err := os.Stat(c.dir.etcdData()); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	content, err := NewEncryption()
	if err != nil {
		return err
	}
	return c.dir.write(c.dir.encryption(), content)
}

// encrypted reports whether Secrets are encrypted.
func (d layout) encrypted() bool {
	_, err := os.Stat(d.encryption())
	return err == nil
}
