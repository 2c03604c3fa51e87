// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package kubelet says what the kubelet of an installed system has of its client certificate, and gives it a bootstrap token where that is lost.
package kubelet

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/muster-io/muster/agent-service/internal/agentproto"
	"github.com/muster-io/muster/agent-service/internal/join"
)

// Files are those of the kubelet.
type Files struct {
	// Root is where the installed system is; empty for /.
	Root string

	mu sync.Mutex
	// given is true while there is a token that was given here.
	given bool
}

func (f *Files) path(of string) string { return filepath.Join("/", f.Root, of) }

// KubeletCertificate is what there is of the certificate, empty for a system without a kubelet of these files. A token that was given goes with the first look at a certificate that
// the kubelet uses.
func (f *Files) KubeletCertificate() agentproto.KubeletCertificate {
	f.mu.Lock()
	defer f.mu.Unlock()
	certificate := f.certificate()
	if f.given && certificate == agentproto.CertificateValid {
		f.given = f.take() != nil
	}
	return certificate
}

// certificate follows the kubelet's own rule: one that finds a certificate valid asks with that, and with its bootstrap token otherwise.
func (f *Files) certificate() agentproto.KubeletCertificate {
	kubeconfig, noKubeconfig := os.ReadFile(f.path(join.KubeconfigPath))
	if _, err := os.Stat(f.path(join.Path)); err != nil && !bytes.Contains(kubeconfig, []byte(filepath.Base(join.ClientCertificatePath))) {
		return "" // it joins nothing, or by other files
	}
	content, err := os.ReadFile(f.path(join.ClientCertificatePath))
	if err != nil || noKubeconfig != nil {
		return agentproto.CertificateMissing
	}
	expires, err := join.CertificateExpires(content)
	switch {
	case err != nil:
		return agentproto.CertificateMissing
	case time.Now().After(expires):
		return agentproto.CertificateExpired
	}
	return agentproto.CertificateValid
}

// GiveKubeconfig lets a kubelet without a certificate ask for one. It starts again by itself until it has that. No error quotes the token.
func (f *Files) GiveKubeconfig(kubeconfig string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	path := f.path(join.BootstrapKubeconfigPath)
	if f.certificate() == agentproto.CertificateValid {
		return nil // it has got one meanwhile
	}
	f.given = true
	if known, err := os.ReadFile(path); err == nil && string(known) == kubeconfig {
		return nil
	}
	next := path + ".next"
	err := os.MkdirAll(filepath.Dir(path), 0o755) //nolint:gosec // the file in it is private
	if err == nil {
		err = os.WriteFile(next, []byte(kubeconfig), 0o600)
	}
	if err == nil {
		err = os.Rename(next, path)
	}
	if err != nil {
		return fmt.Errorf("keeping the bootstrap kubeconfig: %w", err)
	}
	return nil
}

// take overwrites and deletes the token. The kubelet's certificate is on the disk before.
func (f *Files) take() error {
	unix.Sync()
	if err := Erase(f.path(join.BootstrapKubeconfigPath)); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// Erase overwrites a file of an installed system that holds secrets before it deletes it. The error is os.ErrNotExist where there is none.
func Erase(path string) error {
	file, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	info, err := file.Stat()
	if err == nil {
		_, err = file.WriteAt(make([]byte, info.Size()), 0)
	}
	if err := errors.Join(err, file.Sync(), file.Close()); err != nil {
		return fmt.Errorf("erasing %s: %w", path, err)
	}
	return os.Remove(path)
}
