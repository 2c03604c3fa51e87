// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// Options describe a control plane.
type Options struct {
	// Dir is the data directory; it is created when missing.
	Dir string
	// Binaries are the programs to run.
	Binaries Binaries
	// Name of cluster, user and context in the kubeconfig; default "controlplane".
	Name string
	// Host is the address that the API server listens on; default 127.0.0.1.
	Host netip.Addr
	// Ports to choose from when the directory has no port yet; by default the kernel chooses.
	Ports PortRange
	// SkipPort excludes ports of the range, for example those of stopped control planes; may be nil.
	SkipPort func(port int) bool
	// ServiceClusterIPRange holds the addresses of Services; default 10.96.0.0/16.
	ServiceClusterIPRange netip.Prefix
	// PodCIDR holds the addresses of pods, a /24 (IPv4) or /64 (IPv6) for each node. A control plane with one takes nodes: it
	// runs a scheduler, accepts bootstrap tokens, and its Host is an address that nodes reach. The zero prefix: none.
	PodCIDR netip.Prefix
	// Tokens are static bearer tokens; they change when the control plane is started.
	Tokens []Token
	// UnsafeNoFsync makes writes fast and a power cut fatal for the data.
	UnsafeNoFsync bool
	// EncryptSecrets has Secrets encrypted in etcd, with a key of the directory's own. A directory that has data without such a key goes on without.
	EncryptSecrets bool
	// Audit is how much of each request the API server writes to log/audit.log: Metadata, Request or RequestResponse; "" for nothing.
	Audit string
	// EmulatedVersion is the minor of Kubernetes, such as 1.34, whose APIs are served and whose features are on: at most three minors below that of the
	// binaries. Empty: the minor of the binaries. Binaries older than 1.31 know no emulation.
	EmulatedVersion string
	// CopyOf is the data directory of a stopped control plane, whose keys and data a directory without data begins with; "" for none. Credentials for one
	// are valid in the other, and both have the same UIDs.
	CopyOf string
}

// Token is a bearer token that the API server accepts for as long as it runs.
type Token struct {
	Secret string
	User   string
	Groups []string
}

func (o *Options) setDefaults() error {
	var err error
	if o.Dir, err = filepath.Abs(o.Dir); err != nil {
		return fmt.Errorf("finding the data directory: %w", err)
	}
	if o.Name == "" {
		o.Name = "controlplane"
	}
	if !o.Host.IsValid() {
		o.Host = netip.AddrFrom4([4]byte{127, 0, 0, 1})
	}
	if !o.ServiceClusterIPRange.IsValid() {
		o.ServiceClusterIPRange = netip.MustParsePrefix("10.96.0.0/16")
	}
	return nil
}

// takesNodes reports whether machines can join the control plane as nodes.
func (o *Options) takesNodes() bool { return o.PodCIDR.IsValid() }

// Plane is one control plane whose directory this process owns. Its methods may be called concurrently.
type Plane struct {
	options  Options
	dir      layout
	lock     *os.File
	reserved *reservation

	// life serialises Start and Stop, and guards closed: a directory that was given up is not started in.
	life   sync.Mutex
	closed bool

	mu      sync.Mutex
	current *run
	probe   *probe
}

// Open takes ownership of a data directory: it ends what a killed owner left, takes the lock, and prepares port, keys
// and kubeconfig. It starts no process. Errors: InUseError, PortTakenError, NoFreePortError, DiskFullError.
func Open(ctx context.Context, options Options) (*Plane, error) {
	if err := options.setDefaults(); err != nil {
		return nil, err
	}
	p := &Plane{options: options, dir: layout(options.Dir)}
	if err := p.dir.create(); err != nil {
		return nil, err
	}
	var err error
	if p.lock, err = p.dir.takeLock(ctx); err != nil {
		return nil, err
	}
	if err := p.prepare(ctx); err != nil {
		return nil, errors.Join(err, p.release())
	}
	return p, nil
}

// prepare fills the directory.
func (p *Plane) prepare(ctx context.Context) error {
	if p.options.CopyOf != "" && !p.dir.hasData() {
		if err := p.dir.copyFrom(layout(p.options.CopyOf)); err != nil {
			return err
		}
	}
	if err := p.reservePort(ctx); err != nil {
		return err
	}
	return p.configuration().write()
}

// reservePort holds the recorded port, or chooses one and records it. A port that no client can know yet is replaced
// when another process has taken it.
func (p *Plane) reservePort(ctx context.Context) error {
	recorded, err := p.dir.readRecord()
	if err != nil {
		return err
	}
	if recorded.Port != 0 {
		p.reserved, err = reserve(ctx, p.options.Host, recorded.Port)
		var taken *PortTakenError
		if err == nil || recorded.Served || !errors.As(err, &taken) {
			return err
		}
	}
	if p.reserved, err = reserveIn(ctx, p.options.Host, p.options.Ports, p.options.SkipPort); err != nil {
		return err
	}
	return p.dir.writeRecord(record{Port: p.reserved.port, Begun: recorded.Begun})
}

// Outdated reports whether a certificate is missing, near its end, or not valid yet, as when the clock was ahead, so that Renew replaces it.
func (p *Plane) Outdated() bool {
	now := time.Now()
	for _, leaf := range leaves(p.options.Host, nil, p.options.takesNodes()) {
		pair, err := keys(p.dir).readPair(leaf.file)
		if err != nil || nearsEnd(pair.Certificate, now) || now.Before(pair.Certificate.NotBefore) {
			return true
		}
	}
	return false
}

// Renew replaces certificates that near their end, also while the control plane runs: its processes notice. The kubeconfig changes with the admin's certificate; the one before
// works until its own certificate ends.
func (p *Plane) Renew() error {
	p.life.Lock()
	defer p.life.Unlock()
	if err := p.configuration().write(); err != nil {
		return err
	}
	if asked := p.setProbe(nil); asked != nil {
		asked.close()
	}
	return nil
}

// Reconfigure changes the programs that the next Start runs, and what its API server audits, see Options.
func (p *Plane) Reconfigure(binaries Binaries, audit string) {
	p.life.Lock()
	defer p.life.Unlock()
	p.options.Binaries, p.options.Audit = binaries, audit
}

// URL is the address of the API server; it never changes once the API server was ready.
func (p *Plane) URL() string {
	return urlOf(p.options.Host, p.reserved.port)
}

// Port of the API server.
func (p *Plane) Port() int { return p.reserved.port }

// Dir is the absolute path of the data directory.
func (p *Plane) Dir() string { return string(p.dir) }

// KubeconfigPath is the file with the admin's kubeconfig.
func (p *Plane) KubeconfigPath() string { return p.dir.kubeconfig() }

// Kubeconfig is the admin's kubeconfig: it holds a client certificate and its key, and names no file.
func (p *Plane) Kubeconfig() ([]byte, error) {
	content, err := os.ReadFile(p.dir.kubeconfig())
	if err != nil {
		return nil, fmt.Errorf("reading the kubeconfig: %w", err)
	}
	return content, nil
}

// NodeManagerKubeconfig is the kubeconfig of NodeManagerUser in a data directory: it holds a client certificate and its key, and
// names no file. It is nil where the control plane takes no nodes.
func NodeManagerKubeconfig(dir string) ([]byte, error) {
	content, err := os.ReadFile(layout(dir).nodeManagerConfig())
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the kubeconfig of %s: %w", NodeManagerUser, err)
	}
	return content, nil
}

// Close kills what still runs and gives the directory up; the data stays.
func (p *Plane) Close() error {
	p.end()
	return p.release()
}

// Destroy kills what still runs, removes the directory with all data and gives it up.
func (p *Plane) Destroy() error {
	p.end()
	err := os.RemoveAll(string(p.dir))
	return errors.Join(err, p.release())
}

func (p *Plane) release() error {
	if asked := p.setProbe(nil); asked != nil {
		asked.close()
	}
	err := p.reserved.release()
	return errors.Join(err, p.lock.Close())
}
