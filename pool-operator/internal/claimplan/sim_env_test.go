// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package claimplan

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	hivev1 "github.com/muster-io/muster/apis/hive/v1"
)

// The simulator: an API server in memory that knows resourceVersions and finalizers, and replicas whose views of each kind lag behind by any number of writes.

var (
	errConflict = errors.New("conflict")
	errCrash    = errors.New("crash")
)

const simNamespace = "team"

// state is everything at one moment. States share what did not change.
type state struct {
	claims map[string]*hivev1.ClusterClaim
	cds    map[string]*hivev1.ClusterDeployment
	pool   *hivev1.ClusterPool
	rights map[string]grant // by namespace
}

// grant is a Role and RoleBinding.
type grant struct {
	claim    types.UID
	rules    []rbacv1.PolicyRule
	subjects []rbacv1.Subject
}

type simulation struct {
	rng     *rand.Rand
	now     time.Time
	version int
	serial  int
	state
	history []state
	// owner remembers every pair that ever was.
	owner map[string]types.UID
	// preset are the claims whose namespace a user wrote; forbidden is what went wrong with one.
	preset    map[types.UID]bool
	forbidden error
	trace     []string
}

func newSimulation(seed uint64) *simulation {
	w := &simulation{
		rng:   rand.New(rand.NewPCG(seed, 1)),
		now:   time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC),
		state: state{claims: map[string]*hivev1.ClusterClaim{}, cds: map[string]*hivev1.ClusterDeployment{}, rights: map[string]grant{}},
		owner: map[string]types.UID{}, preset: map[types.UID]bool{},
	}
	w.pool = &hivev1.ClusterPool{ObjectMeta: metav1.ObjectMeta{Namespace: simNamespace, Name: "p"}}
	w.record("start")
	return w
}

// record ends a write.
func (w *simulation) record(format string, args ...any) {
	w.trace = append(w.trace, fmt.Sprintf("%d ", len(w.history))+fmt.Sprintf(format, args...))
	w.history = append(w.history, state{claims: maps.Clone(w.claims), cds: maps.Clone(w.cds), pool: w.pool, rights: maps.Clone(w.rights)})
}

func (w *simulation) nextVersion() string { w.version++; return fmt.Sprint(w.version) }

func (w *simulation) putClaim(c *hivev1.ClusterClaim, what string) *hivev1.ClusterClaim {
	c.ResourceVersion = w.nextVersion()
	if !c.DeletionTimestamp.IsZero() && len(c.Finalizers) == 0 {
		delete(w.claims, c.Name)
	} else {
		w.claims[c.Name] = c
	}
	w.record("claim %s(%s): %s → ns=%q", c.Name, c.UID, what, c.Spec.Namespace)
	return c
}

func (w *simulation) putCluster(cd *hivev1.ClusterDeployment, what string) *hivev1.ClusterDeployment {
	cd.ResourceVersion = w.nextVersion()
	w.cds[cd.Name] = cd
	w.record("cluster %s: %s → claim=%s/%s", cd.Name, what, cd.Spec.ClusterPoolRef.ClaimName, cd.Spec.ClusterPoolRef.ClaimUID)
	return cd
}

// changeClaim is an update with a precondition; an empty version is none.
func (w *simulation) changeClaim(name string, uid types.UID, version, what string, change func(*hivev1.ClusterClaim)) (*hivev1.ClusterClaim, error) {
	live := w.claims[name]
	if live == nil || uid != "" && live.UID != uid || version != "" && live.ResourceVersion != version {
		return nil, errConflict
	}
	next := live.DeepCopy()
	change(next)
	return w.putClaim(next, what), nil
}

func (w *simulation) changeCluster(name string, uid types.UID, version, what string, change func(*hivev1.ClusterDeployment)) (*hivev1.ClusterDeployment, error) {
	live := w.cds[name]
	if live == nil || uid != "" && live.UID != uid || version != "" && live.ResourceVersion != version {
		return nil, errConflict
	}
	next := live.DeepCopy()
	change(next)
	return w.putCluster(next, what), nil
}

func (w *simulation) deleteClaim(name, what string) {
	_, _ = w.changeClaim(name, "", "", what, func(c *hivev1.ClusterClaim) { c.DeletionTimestamp = new(metav1.NewTime(w.now)) })
}

// replica is an operator with its own views, each at some point of the history.
type replica struct {
	w             *simulation
	claims, cds   int
	pool, rights  int
	crashAfter    int // writes until a crash; negative never
	writes, reads int
	flight        map[string]*Snapshot
}

func newReplica(w *simulation) *replica {
	return &replica{w: w, crashAfter: -1, flight: map[string]*Snapshot{}}
}

func (r *replica) sync() {
	last := len(r.w.history) - 1
	r.claims, r.cds, r.pool, r.rights = last, last, last, last
}

// catchUp lets each view come closer to the present, or not.
func (r *replica) catchUp() {
	last := len(r.w.history) - 1
	for _, view := range []*int{&r.claims, &r.cds, &r.pool, &r.rights} {
		switch lag := last - *view; r.w.rng.IntN(3) {
		case 0:
			*view += r.w.rng.IntN(lag + 1)
		case 1:
			*view = last
		}
	}
}

func (r *replica) view() state {
	h := r.w.history
	return state{claims: h[r.claims].claims, cds: h[r.cds].cds, pool: h[r.pool].pool, rights: h[r.rights].rights}
}

// observe is what the controller's observe does.
func (r *replica) observe(name string) *Snapshot {
	v := r.view()
	claim := v.claims[name]
	if claim == nil {
		return nil
	}
	s := &Snapshot{Claim: claim, Pool: v.pool}
	if claim.Spec.Namespace != "" {
		r.own(s, v, claim.Spec.Namespace)
	}
	for _, key := range slices.Sorted(maps.Keys(v.cds)) {
		s.Clusters = append(s.Clusters, ClusterOf(v.cds[key]))
	}
	for _, c := range v.claims {
		s.Claims = append(s.Claims, WaiterOf(c))
	}
	return s
}

func (r *replica) own(s *Snapshot, v state, namespace string) {
	s.Own, s.Role, s.Binding = nil, nil, nil
	if cd := v.cds[namespace]; cd != nil {
		s.Own = new(ClusterOf(cd))
	}
	r.rightsOf(s, v, namespace)
}

func (r *replica) rightsOf(s *Snapshot, v state, namespace string) {
	s.Role, s.Binding = nil, nil
	if g, there := v.rights[namespace]; there {
		s.Role, s.Binding = &rbacv1.Role{Rules: g.rules}, &rbacv1.RoleBinding{Subjects: g.subjects, RoleRef: OwnerRoleRef()}
	}
}

func subjects() []rbacv1.Subject { return []rbacv1.Subject{{Kind: "User", Name: "ada"}} }

// wrote counts a write and crashes when it is due.
func (r *replica) wrote() error {
	r.writes++
	if r.crashAfter == 0 {
		r.crashAfter = -1
		clear(r.flight)
		return errCrash
	}
	if r.crashAfter > 0 {
		r.crashAfter--
	}
	return nil
}

// step takes one step of the pass over the claim: it begins one, or carries out one action with the snapshot that the pass has, however old that is by now.
// It says whether anything was written.
func (r *replica) step(name string) (wrote bool, err error) {
	s := r.flight[name]
	if s == nil {
		before := r.writes
		if err := r.orphans(name); err != nil {
			return true, err
		}
		if s = r.observe(name); s != nil {
			r.flight[name] = s
		}
		return r.writes > before, nil
	}
	d := Plan(r.w.now, *s)
	if d.Action != nil {
		ended, err := r.execute(s, d.Action)
		if err != nil || ended {
			delete(r.flight, name)
		}
		return true, err
	}
	delete(r.flight, name)
	if d.Status == nil {
		return false, nil
	}
	if _, err := r.w.changeClaim(s.Claim.Name, s.Claim.UID, s.Claim.ResourceVersion, "status", func(c *hivev1.ClusterClaim) { c.Status = *d.Status.DeepCopy() }); err != nil {
		return true, err
	}
	return true, r.wrote()
}

// reconcile is a whole pass. It says whether anything was written.
func (r *replica) reconcile(name string) (wrote bool) {
	delete(r.flight, name)
	for range 14 {
		did, err := r.step(name)
		wrote = wrote || did
		if err != nil || r.flight[name] == nil {
			return wrote
		}
	}
	delete(r.flight, name)
	return true
}
