// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package poolplan_test

import (
	"maps"
	"math/rand/v2"
	"strconv"
	"time"

	hivev1 "github.com/muster-io/muster/apis/hive/v1"
	"github.com/muster-io/muster/pool-operator/internal/poolplan"
)

// passTime is how long a pass may take, as in the controller.
const passTime = 30 * time.Second

// replica is a model of one process of the operator: caches that lag by any number of events, and a pass that can be interrupted between any two writes.
type replica struct {
	server *apiServer
	random *rand.Rand

	at     [resources]int
	begin  [resources]uint64
	pool   *hivev1.ClusterPool
	known  [resources]map[string]any
	done   map[string]time.Time
	refuse map[string]string
	absent map[string]bool

	steps    []func() bool
	deadline time.Time
	// decided is called when a ticket was written.
	decided func(s poolplan.Snapshot, d poolplan.Decision)
	// note records what is done.
	note func(poolplan.Action)
}

func newReplica(server *apiServer, random *rand.Rand) *replica {
	r := &replica{server: server, random: random, decided: func(poolplan.Snapshot, poolplan.Decision) {}, note: func(poolplan.Action) {}}
	r.restart()
	return r
}

// restart forgets everything and lists anew.
func (r *replica) restart() {
	r.done, r.refuse, r.absent = map[string]time.Time{}, map[string]string{}, map[string]bool{}
	r.steps = nil
	for kind := range resources {
		r.known[kind] = map[string]any{}
		for _, c := range r.server.logs[kind] {
			r.apply(kind, c)
		}
		r.at[kind] = len(r.server.logs[kind])
		r.begin[kind] = r.server.version
	}
}

func (r *replica) apply(kind resource, c change) {
	if kind == pools {
		r.pool, _ = c.object.(*hivev1.ClusterPool)
		return
	}
	if c.object == nil {
		delete(r.known[kind], c.key)
		return
	}
	r.known[kind][c.key] = c.object
}

// observe brings one cache one event further; false means that there was none.
func (r *replica) observe(kind resource) bool {
	if r.at[kind] >= len(r.server.logs[kind]) {
		return false
	}
	r.apply(kind, r.server.logs[kind][r.at[kind]])
	r.at[kind]++
	return true
}

func (r *replica) catchUp() {
	for kind := range resources {
		for r.observe(kind) {
			continue
		}
	}
}

func (r *replica) progress(kind resource) string {
	version := r.begin[kind]
	if r.at[kind] > 0 {
		version = max(version, r.server.logs[kind][r.at[kind]-1].version)
	}
	if version == 0 {
		return ""
	}
	return strconv.FormatUint(version, 10)
}

func (r *replica) snapshot(live bool) poolplan.Snapshot {
	s := poolplan.Snapshot{
		Pool: r.pool, Missing: r.server.missing, Slugs: r.slugs(), Refused: maps.Clone(r.refuse), Absent: maps.Clone(r.absent), Live: live,
		View: hivev1.ClusterPoolObservation{ClusterDeployments: r.progress(clusters), ClusterClaims: r.progress(claims)},
	}
	knownClusters, knownClaims := r.known[clusters], r.known[claims]
	if live {
		s.Pool = r.server.pool
		knownClusters, knownClaims = map[string]any{}, map[string]any{}
		for name, c := range r.server.clusters {
			knownClusters[name] = c
		}
		for name, c := range r.server.claims {
			knownClaims[name] = c
		}
		version := strconv.FormatUint(r.server.version, 10)
		s.View = hivev1.ClusterPoolObservation{ClusterDeployments: version, ClusterClaims: version}
	}
	for _, name := range sortedKeys(knownClusters) {
		s.Clusters = append(s.Clusters, knownClusters[name].(poolplan.Cluster))
	}
	for _, name := range sortedKeys(knownClaims) {
		s.Claims = append(s.Claims, knownClaims[name].(claim).Claim)
	}
	for _, name := range sortedKeys(r.known[namespaces]) {
		n := r.known[namespaces][name].(poolplan.Namespace)
		_, n.Occupied = knownClusters[name]
		s.Namespaces = append(s.Namespaces, n)
	}
	return s
}

func (r *replica) slugs() []string {
	out := make([]string, poolplan.SliceOfPass+5)
	for i := range out {
		slug := make([]byte, poolplan.SlugLength)
		for j := range slug {
			slug[j] = poolplan.SlugAlphabet[r.random.IntN(len(poolplan.SlugAlphabet))]
		}
		out[i] = string(slug)
	}
	return out
}

// plan begins a pass: it decides, and queues the writes that the decision asks for. It returns what was decided.
func (r *replica) plan(live bool) poolplan.Decision {
	if r.pool == nil || (live && r.server.pool == nil) {
		return poolplan.Decision{}
	}
	s := r.snapshot(live)
	d := poolplan.Plan(r.server.now, s)
	if d.Wait {
		return d
	}
	r.deadline = r.server.now.Add(passTime)
	pool, ticket := s.Pool.DeepCopy(), false
	for _, a := range d.Actions {
		ticket = ticket || (ticketed(a) && !r.recently(a))
	}
	switch {
	case d.Change != poolplan.StatusSame:
		r.steps = append(r.steps, func() bool {
			ok := r.server.writeStatus(pool, d.Status)
			if ok {
				// The next action starts from the pool as it was just written.
				*pool = *r.server.pool
				r.decided(s, d)
			}
			return ok
		})
	case ticket:
		r.steps = append(r.steps, func() bool { return r.server.unchanged(pool) })
	}
	for _, i := range r.random.Perm(len(d.Actions)) {
		if a := d.Actions[i]; !ticketed(a) || !r.recently(a) {
			r.queue(pool, a)
		}
	}
	return d
}

func ticketed(a poolplan.Action) bool {
	switch a.(type) {
	case poolplan.CreateCluster, poolplan.DeleteCluster, poolplan.WithdrawCluster, poolplan.DeleteNamespace:
		return true
	case poolplan.HoldPool, poolplan.ReleasePool, poolplan.SetPower:
	}
	return false
}

func key(a poolplan.Action) string {
	switch a := a.(type) {
	case poolplan.CreateCluster:
		return "create/" + a.Namespace
	case poolplan.DeleteCluster:
		return "delete/" + a.Namespace
	case poolplan.HoldPool, poolplan.ReleasePool, poolplan.SetPower, poolplan.WithdrawCluster, poolplan.DeleteNamespace:
	}
	return ""
}

func (r *replica) recently(a poolplan.Action) bool {
	at, done := r.done[key(a)]
	return done && key(a) != "" && r.server.now.Sub(at) < time.Minute
}

// queue queues the writes of an action. A step that fails does not keep the others from being done; only the ticket does.
func (r *replica) queue(pool *hivev1.ClusterPool, a poolplan.Action) {
	r.note(a)
	step := func(f func()) { r.steps = append(r.steps, func() bool { f(); return true }) }
	switch a := a.(type) {
	case poolplan.HoldPool:
		step(func() { r.server.setFinalizer(pool, true) })
	case poolplan.ReleasePool:
		step(func() {
			if len(r.server.clusters) == 0 {
				r.server.setFinalizer(pool, false)
			}
		})
	case poolplan.CreateCluster:
		// A creation that is repeated asks again before it writes; its two writes follow each other closely.
		stands := func() bool { return !a.Replay || r.server.unchanged(pool) }
		step(func() {
			if stands() {
				r.server.createNamespace(a.Namespace)
			}
		})
		step(func() {
			if !stands() {
				return
			}
			created, refused := r.server.createCluster(a)
			if created {
				r.done[key(a)] = r.server.now
			}
			if refused {
				r.refuse[a.Namespace] = "refused"
			}
		})
	case poolplan.DeleteCluster:
		step(func() {
			if r.server.deleteCluster(a) {
				r.done[key(a)] = r.server.now
			}
		})
	case poolplan.WithdrawCluster:
		step(func() {
			if _, there := r.server.clusters[a.Namespace]; !there {
				r.absent[a.Namespace] = true
			}
		})
	case poolplan.SetPower:
		step(func() { r.server.setPower(a) })
	case poolplan.DeleteNamespace:
		step(func() { r.server.deleteNamespace(a) })
	}
}

// step does the next write of the pass; false means that there was none. A pass that took too long is given up.
func (r *replica) step() bool {
	if len(r.steps) == 0 {
		return false
	}
	if r.server.now.After(r.deadline) {
		r.steps = nil
		return false
	}
	next := r.steps[0]
	r.steps = r.steps[1:]
	if !next() {
		r.steps = nil
	}
	return true
}

// reconcile does a whole pass with fresh caches and returns what was decided.
func (r *replica) reconcile() poolplan.Decision {
	r.steps = nil
	r.catchUp()
	d := r.plan(false)
	if d.Wait {
		d = r.plan(true)
	}
	for r.step() {
		continue
	}
	return d
}
