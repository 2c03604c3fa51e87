// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package process

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/muster-io/muster/pool-operator/internal/controlplane"
	"github.com/muster-io/muster/pool-operator/internal/provision"
	"github.com/muster-io/muster/pool-operator/internal/provision/changes"
)

// defaultPorts lie below the ports that operating systems give to outgoing connections and to node ports, so that the
// port of a stopped cluster stays free.
var defaultPorts = controlplane.PortRange{First: 20000, Last: 29999}

// Options configure the runtime.
type Options struct {
	// Root is the directory of all clusters; it is created when missing.
	Root string
	// Binaries returns the programs. It is asked at every start, so that what is installed later is found.
	Binaries func() (controlplane.Binaries, error)
	// Host is the address that clusters listen on; default 127.0.0.1.
	Host netip.Addr
	// Ports to choose from; default defaultPorts.
	Ports controlplane.PortRange
	// UnsafeNoFsync makes clusters faster and loses their data in a power cut.
	UnsafeNoFsync bool
	// MaxStarting is how many clusters may be starting at once; default one per processor.
	MaxStarting int
}

// Runtime implements the port of package controller/clusterdeployment.
type Runtime struct {
	options  Options
	changes  *changes.Changes
	starting chan struct{}
	rootLock *os.File
	// life is the context of what outlives the call that began it; end ends it.
	life context.Context
	end  context.CancelFunc

	mu       sync.Mutex
	clusters map[provision.ClusterRef]*cluster
	// closed says that the operator ends: nothing is started any more.
	closed bool
}

// New returns a runtime over whatever earlier ones left below the root. It starts nothing.
func New(ctx context.Context, options Options) (*Runtime, error) {
	options.setDefaults()
	root, err := filepath.Abs(options.Root)
	if err != nil {
		return nil, fmt.Errorf("finding the root of hosted clusters: %w", err)
	}
	options.Root = root
	r := &Runtime{
		options:  options,
		changes:  changes.New(),
		starting: make(chan struct{}, options.MaxStarting),
		clusters: map[provision.ClusterRef]*cluster{},
	}
	r.life, r.end = context.WithCancel(context.WithoutCancel(ctx))
	if err := os.MkdirAll(root, 0o700); err != nil {
		return nil, fmt.Errorf("creating the root of hosted clusters: %w", err)
	}
	if err := r.takeOver(ctx); err != nil {
		return nil, errors.Join(err, r.rootLock.Close())
	}
	return r, nil
}

func (o *Options) setDefaults() {
	if o.Binaries == nil {
		o.Binaries = func() (controlplane.Binaries, error) { return controlplane.FindBinaries("") }
	}
	if !o.Host.IsValid() {
		o.Host = netip.AddrFrom4([4]byte{127, 0, 0, 1})
	}
	if o.Ports == (controlplane.PortRange{}) {
		o.Ports = defaultPorts
	}
	if o.MaxStarting <= 0 {
		o.MaxStarting = runtime.GOMAXPROCS(0)
	}
}

// reachedByNodes reports whether other machines can reach the address that clusters listen on.
func (r *Runtime) reachedByNodes() bool {
	return !r.options.Host.IsLoopback() && !r.options.Host.IsUnspecified()
}

// takeOver ends the processes of an operator that was killed and clears away what it was laying down or removing. The
// root's lock reports whether another operator lives here: then what looks half laid down may be its work in progress.
func (r *Runtime) takeOver(ctx context.Context) error {
	var err error
	r.rootLock, err = os.OpenFile(filepath.Join(r.options.Root, "lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return fmt.Errorf("locking the root of hosted clusters: %w", err)
	}
	entries, err := os.ReadDir(r.options.Root)
	if err != nil {
		return fmt.Errorf("listing hosted clusters: %w", err)
	}
	alone := unix.Flock(int(r.rootLock.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil
	for _, entry := range entries {
		if !entry.IsDir() {
			continue
		}
		switch err := r.clear(ctx, entry.Name(), alone); {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil: // the start of that cluster says so; no other one waits for it
			log.FromContext(ctx).Error(err, "a directory of hosted clusters is left as it is")
		}
	}
	if err := unix.Flock(int(r.rootLock.Fd()), unix.LOCK_SH); err != nil {
		return fmt.Errorf("locking the root of hosted clusters: %w", err)
	}
	return nil
}

// clear ends what is left running in one directory, and removes one that is half done.
func (r *Runtime) clear(ctx context.Context, name string, alone bool) error {
	dir := filepath.Join(r.options.Root, name)
	if err := controlplane.Reap(ctx, dir); err != nil {
		return fmt.Errorf("ending what is left in %s: %w", dir, err)
	}
	if !isHalfDone(name, alone) {
		return nil
	}
	// Another operator that is removing it, but has not ended its processes yet, owns it.
	if _, owned := controlplane.Owned(dir); owned {
		return nil
	}
	if err := os.RemoveAll(dir); err != nil {
		return fmt.Errorf("removing %s: %w", dir, err)
	}
	return nil
}

// Start implements the port.
func (r *Runtime) Start(_ context.Context, ref provision.ClusterRef, spec provision.Spec) error {
	for {
		problem, forgotten := r.obtain(ref).start(spec) //nolint:contextcheck // a cluster outlives the call that starts it
		if !forgotten {
			return asError(problem)
		}
	}
}

// Renew implements the port. A cluster that does not run renews its certificates when it is started.
func (r *Runtime) Renew(_ context.Context, ref provision.ClusterRef, _ provision.Spec) error {
	if c := r.find(ref); c != nil {
		return asError(c.renew())
	}
	return nil
}

// Stop implements the port.
func (r *Runtime) Stop(_ context.Context, ref provision.ClusterRef) error {
	if c := r.find(ref); c != nil {
		return asError(c.stop()) //nolint:contextcheck // stopping goes on after the call
	}
	return nil
}

// Delete implements the port.
func (r *Runtime) Delete(_ context.Context, ref provision.ClusterRef) error {
	if c := r.find(ref); c != nil {
		return asError(c.delete()) //nolint:contextcheck // removing goes on after the call
	}
	return nil
}

// Observe implements the port.
func (r *Runtime) Observe(ctx context.Context, ref provision.ClusterRef) (provision.Observation, error) {
	c := r.find(ref)
	if c == nil {
		return provision.Observation{State: provision.StateAbsent}, ctx.Err()
	}
	seen, problem := c.observe(ctx)
	if problem != nil {
		return seen, problem
	}
	return seen, ctx.Err()
}

// Access implements the port.
func (r *Runtime) Access(_ context.Context, ref provision.ClusterRef) (provision.Access, error) {
	return r.access(ref)
}

func (r *Runtime) access(ref provision.ClusterRef) (provision.Access, error) {
	dir := r.dir(ref)
	kubeconfig, err := os.ReadFile(filepath.Join(dir, "kubeconfig"))
	if err != nil {
		return provision.Access{}, fmt.Errorf("reading the kubeconfig of %s: %w", ref, err)
	}
	password, err := readPassword(dir)
	if err != nil {
		return provision.Access{}, fmt.Errorf("reading the password of %s: %w", ref, err)
	}
	nodeManager, err := controlplane.NodeManagerKubeconfig(dir)
	if err != nil {
		return provision.Access{}, fmt.Errorf("reading the node manager's kubeconfig of %s: %w", ref, err)
	}
	return provision.Access{Kubeconfig: kubeconfig, NodeManager: nodeManager, Password: password}, nil
}

// List implements the port.
func (r *Runtime) List(ctx context.Context) ([]provision.ClusterRef, error) {
	records, err := r.records()
	if err != nil {
		return nil, err
	}
	listed := map[provision.ClusterRef]bool{}
	var refs []provision.ClusterRef
	for _, record := range records {
		listed[record.ref()] = true
		refs = append(refs, record.ref())
	}
	r.mu.Lock()
	clusters := slices.Collect(maps.Values(r.clusters))
	r.mu.Unlock()
	for _, c := range clusters {
		// One that is being removed has lost its directory to the rename already.
		if !listed[c.ref] && c.present() {
			refs = append(refs, c.ref)
		}
	}
	return refs, ctx.Err()
}

// Changes implements the port.
func (r *Runtime) Changes() *changes.Changes { return r.changes }

// Close stops every cluster gracefully, for at most as long as the context lives, and gives their directories up. The
// runtime must not be used after it.
func (r *Runtime) Close(ctx context.Context) error {
	r.mu.Lock()
	r.closed = true
	clusters := slices.Collect(maps.Values(r.clusters))
	r.mu.Unlock()
	var group sync.WaitGroup
	for _, c := range clusters {
		group.Go(func() { c.close(ctx) })
	}
	group.Wait()
	r.end()
	return r.rootLock.Close()
}

// find returns the cluster when there is anything of it, in memory or on disk.
func (r *Runtime) find(ref provision.ClusterRef) *cluster {
	r.mu.Lock()
	c := r.clusters[ref]
	r.mu.Unlock()
	if c != nil {
		return c
	}
	if _, err := os.Stat(r.dir(ref)); err != nil {
		return nil
	}
	return r.obtain(ref)
}

// obtain returns the one cluster in memory for a reference.
func (r *Runtime) obtain(ref provision.ClusterRef) *cluster {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.clusters[ref]
	if c == nil {
		c = &cluster{runtime: r, ref: ref, dir: r.dir(ref), state: provision.StateAbsent, closed: r.closed}
		if _, err := os.Stat(c.dir); err == nil {
			c.state = provision.StateStopped
		}
		r.clusters[ref] = c
	}
	return c
}

// forget drops a cluster of which nothing is left. c.mu is held: callers that still have it ask for another.
func (r *Runtime) forget(c *cluster) {
	c.forgotten = true
	r.mu.Lock()
	if r.clusters[c.ref] == c {
		delete(r.clusters, c.ref)
	}
	r.mu.Unlock()
	r.changes.Add(c.ref)
}

// maxNamePart keeps the name of a directory within what file systems allow; the UID makes it unique.
const maxNamePart = 120

func (r *Runtime) dir(ref provision.ClusterRef) string {
	name := ref.Name
	if len(name) > maxNamePart {
		name = name[:maxNamePart]
	}
	return filepath.Join(r.options.Root, ref.Namespace+"_"+name+"_"+safe(string(ref.UID)))
}

func (r *Runtime) gone(ref provision.ClusterRef) string {
	return filepath.Join(r.options.Root, gonePrefix+safe(string(ref.UID)))
}

// safe keeps an identity from leading out of the root.
func safe(uid string) string {
	return strings.Map(func(c rune) rune {
		if c == '/' || c == 0 {
			return '-'
		}
		return c
	}, uid)
}

// recordedPorts are those of the clusters below the root, running or not.
func (r *Runtime) recordedPorts() map[int]bool {
	ports := map[int]bool{}
	entries, err := os.ReadDir(r.options.Root)
	if err != nil {
		return ports
	}
	for _, entry := range entries {
		if entry.IsDir() {
			ports[controlplane.RecordedPort(filepath.Join(r.options.Root, entry.Name()))] = true
		}
	}
	return ports
}

// closeGrace is for how long a cluster may take to stop when the operator ends.
const closeGrace = 10 * time.Second
