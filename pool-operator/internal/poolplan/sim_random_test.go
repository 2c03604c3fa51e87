// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package poolplan_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	hivev1 "github.com/muster-io/muster/apis/hive/v1"
	"github.com/muster-io/muster/pool-operator/internal/poolplan"
	"github.com/muster-io/muster/pool-operator/internal/poolview"
	"github.com/muster-io/muster/pool-operator/internal/testobj"
)

// Extent of the random test.
const (
	randomRuns = 400
	// stepsOfRun times randomRuns is more than 100,000.
	stepsOfRun = 400
	// gentleDeletion is the least age at which a cluster can be gone: a replica that was about to create it has given up by then.
	gentleDeletion = passTime + 10*time.Second
)

// onceAbove is a run in which a cluster was protected while its deletion was outstanding, and another one was created beside it.
const onceAbove = 5516065039261868339

// onceBad are runs in which a pool went before the last of its namespaces, in which a slow replica created a cluster again that others had deleted, and one in which the deletion of a cluster that a claim had named was forgotten.
var onceBad = []uint64{6225374526506072801, 2030696576028803938, 2734657150135218523, 5415131989201218896}

// TestRandomInterleavings lets replicas without leader election, claims, installers that fail, users who edit, caches that lag and crashes interleave at random, and
// checks at every step what must never happen, and at the end that the pool is what was asked for. MUSTER_SEED repeats one run.
func TestRandomInterleavings(t *testing.T) {
	if seed := os.Getenv("MUSTER_SEED"); seed != "" {
		n, err := strconv.ParseUint(seed, 10, 64)
		require.NoError(t, err)
		newChaos(t, n).run(stepsOfRun)
		return
	}
	for _, seed := range onceBad {
		former := newChaos(t, seed)
		former.former = true
		former.run(stepsOfRun)
	}
	newChaos(t, onceAbove).run(stepsOfRun)
	first := rand.Uint64() >> 1
	t.Logf("seeds %d to %d, %d steps each", first, first+randomRuns-1, stepsOfRun)
	for i := range uint64(randomRuns) {
		newChaos(t, first+i).run(stepsOfRun)
	}
}

// chaos is one random run.
type chaos struct {
	t        *testing.T
	seed     uint64
	random   *rand.Rand
	server   *apiServer
	replicas []*replica
	claims   int
	fails    int
	maxSize  int
	// atOnce is the pool's maxConcurrent; negative for none.
	atOnce int
	events []string
	// former says that clusters and claims drift as they did when the run was bad: its steps hang on it.
	former bool
	// stuck is the cache of each replica that hardly moves.
	stuck map[*replica]resource
}

func newChaos(t *testing.T, seed uint64) *chaos {
	t.Helper()
	random := rand.New(rand.NewPCG(seed, seed))
	c := &chaos{t: t, seed: seed, random: random, atOnce: -1, fails: random.IntN(4), stuck: map[*replica]resource{}}
	c.maxSize = 1 + random.IntN(12)
	options := []testobj.PoolOption{testobj.Size(int32(random.IntN(8))), testobj.MaxSize(int32(c.maxSize)), testobj.RunningCount(int32(random.IntN(4)))}
	if random.IntN(3) > 0 {
		c.atOnce = 1 + random.IntN(4)
		options = append(options, testobj.MaxConcurrent(int32(c.atOnce)))
	}
	if random.IntN(2) == 0 {
		options = append(options, c.inventory())
	}
	c.server = newServer(testobj.Pool("p", options...))
	if random.IntN(8) == 0 {
		c.server.refuse = func(string) bool { return random.IntN(5) == 0 }
	}
	for range 2 + random.IntN(2) {
		r := newReplica(c.server, random)
		r.decided = c.checkTicket
		c.replicas = append(c.replicas, r)
	}
	return c
}

func (c *chaos) inventory() testobj.PoolOption {
	all := []string{"red", "green", "blue", "cyan", "pink", "gold", "grey", "lime"}
	var names []string
	for _, name := range all {
		if c.random.IntN(3) > 0 {
			names = append(names, name)
		}
	}
	return testobj.Inventory(names...)
}

func (c *chaos) run(steps int) {
	for range steps {
		c.step()
		c.check()
	}
	c.converge()
}

func (c *chaos) say(format string, arguments ...any) {
	c.events = append(c.events, fmt.Sprintf(format, arguments...))
}

// step lets one thing happen.
func (c *chaos) step() {
	r := c.replicas[c.random.IntN(len(c.replicas))]
	switch n := c.random.IntN(100); {
	case n < 35:
		c.watch(r)
	case n < 60:
		if len(r.steps) == 0 {
			d := r.plan(c.random.IntN(20) == 0)
			c.say("plan: wait %v change %d actions %+v", d.Wait, d.Change, d.Actions)
		} else {
			r.step()
		}
	case n < 62:
		c.say("crash")
		r.restart()
	case n < 74:
		c.installer()
	case n < 84:
		c.claimController(r)
	case n < 88:
		c.user()
	case n < 92:
		c.claimant()
	case n < 96:
		c.deletions(false)
	default:
		c.server.now = c.server.now.Add(time.Duration(1+c.random.IntN(20)) * time.Second)
	}
}

// watch brings one cache of a replica further. One of its caches at a time hardly moves, so that the others are far ahead of it.
func (c *chaos) watch(r *replica) {
	if c.random.IntN(100) == 0 {
		c.stuck[r] = resource(c.random.IntN(int(resources)))
	}
	kind := resource(c.random.IntN(int(resources)))
	if kind == c.stuck[r] && c.random.IntN(30) > 0 {
		return
	}
	for range 1 + c.random.IntN(3) {
		r.observe(kind)
	}
}

// pick returns a random cluster for which ok holds.
func (c *chaos) pick(ok func(poolplan.Cluster) bool) (poolplan.Cluster, bool) {
	var fit []poolplan.Cluster
	for _, name := range c.server.names() {
		if ok(c.server.clusters[name]) {
			fit = append(fit, c.server.clusters[name])
		}
	}
	if len(fit) == 0 {
		return poolplan.Cluster{}, false
	}
	return fit[c.random.IntN(len(fit))], true
}

func (c *chaos) installer() {
	cluster, ok := c.pick(func(cd poolplan.Cluster) bool { return !cd.Deleting && cd.InstallStopped == nil })
	switch {
	case !ok:
	case !cluster.Installed && c.random.IntN(10) < c.fails:
		c.say("install fails: %s", cluster.Name)
		c.server.breakInstall(cluster.Namespace, "InstallFailed")
	case !cluster.Installed:
		c.say("installed: %s", cluster.Name)
		c.server.install(cluster.Namespace)
	default:
		c.server.followPower(cluster.Namespace)
	}
}

// user edits the pool, a cluster's power, or marks a cluster.
func (c *chaos) user() {
	switch c.random.IntN(50) % 10 {
	case 7, 8:
		c.foreignWriter()
	case 9:
		c.drift()
	case 0, 1:
		size := int32(c.random.IntN(8))
		c.say("size %d", size)
		c.server.edit(testobj.Size(size))
	case 2:
		c.server.edit(testobj.RunningCount(int32(c.random.IntN(5))))
	case 3:
		c.say("new image set")
		c.server.edit(testobj.ImageSet("release-" + strconv.Itoa(c.random.IntN(3))))
	case 4:
		c.say("new inventory")
		c.server.edit(c.inventory())
	case 5:
		if cluster, ok := c.pick(func(cd poolplan.Cluster) bool { return !cd.Deleting && cd.ClaimName == "" }); ok {
			cluster.Power = hivev1.PowerStateRunning
			c.server.putCluster(cluster)
		}
	case 6:
		if c.random.IntN(10) == 0 {
			c.say("the pool is deleted")
			c.server.deletePool()
		}
	}
}

// foreignWriter annotates a cluster or a claim: its version changes, and nothing that a decision is made from.
func (c *chaos) foreignWriter() {
	for range 1 + c.random.IntN(3) {
		if cluster, ok := c.pick(func(poolplan.Cluster) bool { return true }); ok {
			c.server.putCluster(cluster)
		}
		if names := sortedKeys(c.server.claims); len(names) > 0 {
			c.server.putClaim(c.server.claims[names[c.random.IntN(len(names))]])
		}
	}
	if c.server.pool != nil {
		c.server.putPool(c.server.pool)
	}
}

// drift brings about what pools and claims once read differently: a claim is paused or goes on, or names a cluster without having been given one; a running cluster dies; one is marked,
// protected or restored, or is that no more.
func (c *chaos) drift() {
	living := func(cd poolplan.Cluster) bool { return !cd.Deleting }
	mine := func(cd poolplan.Cluster) bool { return cd.Installed && !cd.Deleting && cd.ClaimUID == "" }
	if names := sortedKeys(c.server.claims); len(names) > 0 && c.random.IntN(2) == 0 {
		cl := c.server.claims[names[c.random.IntN(len(names))]]
		if !c.former && cl.Namespace == "" && c.random.IntN(2) == 0 {
			c.preset(cl)
			return
		}
		cl.Paused = !cl.Paused && cl.Namespace == ""
		c.say("claim %s paused %v", cl.Name, cl.Paused)
		c.server.putClaim(cl)
		return
	}
	kind := 2
	if !c.former {
		kind = c.random.IntN(4)
	}
	switch kind {
	case 0:
		c.toggle("marked", mine, func(cd *poolplan.Cluster) *bool { return &cd.Marked })
	case 1:
		c.toggle("protected", living, func(cd *poolplan.Cluster) *bool { return &cd.Protected })
	case 3:
		c.toggle("restored", living, func(cd *poolplan.Cluster) *bool { return &cd.Restored })
	default:
		if cluster, ok := c.pick(mine); ok {
			cluster.NotReady = cluster.Running()
			cluster.ResumingSince = c.server.now
			c.say("cluster %s dies", cluster.Name)
			c.server.putCluster(cluster)
		}
	}
}

// toggle changes a mark of a cluster for which ok holds.
func (c *chaos) toggle(what string, ok func(poolplan.Cluster) bool, mark func(*poolplan.Cluster) *bool) {
	if cluster, found := c.pick(ok); found {
		is := mark(&cluster)
		*is = !*is
		c.say("cluster %s %s %v", cluster.Name, what, *is)
		c.server.putCluster(cluster)
	}
}

// preset is what a user does who writes the name of a cluster into a claim: there is no finalizer, so that it counts for nothing.
func (c *chaos) preset(cl claim) {
	object := &hivev1.ClusterClaim{ObjectMeta: metav1.ObjectMeta{Name: cl.Name, UID: cl.UID, CreationTimestamp: metav1.NewTime(cl.Created)}}
	if cl.Paused {
		object.Annotations = map[string]string{hivev1.AnnotationReconcilePause: "true"}
	}
	if cluster, ok := c.pick(func(poolplan.Cluster) bool { return true }); ok {
		object.Spec.Namespace = cluster.Namespace
	}
	cl.Claim = poolview.ClaimOf(object)
	c.say("claim %s names %q", cl.Name, object.Spec.Namespace)
	c.server.putClaim(cl)
}

// claimant creates or deletes a claim.
func (c *chaos) claimant() {
	if names := sortedKeys(c.server.claims); len(names) > 0 && (len(names) > 4 || c.random.IntN(2) == 0) {
		name := names[c.random.IntN(len(names))]
		c.say("release %s", name)
		c.server.release(name)
		return
	}
	c.claims++
	c.server.claim("claim-" + strconv.Itoa(c.claims))
}

// claimController takes one step for one claim, on the view of a replica: it names a cluster, or it records itself in the one it named, or it chooses again.
func (c *chaos) claimController(r *replica) {
	names := sortedKeys(r.known[claims])
	if len(names) == 0 {
		return
	}
	cl := r.known[claims][names[c.random.IntN(len(names))]].(claim)
	if current, there := c.server.claims[cl.Name]; !there || current.version != cl.version {
		return
	}
	if cl.Namespace == "" {
		if cluster, ok := c.free(r); ok && !cl.Paused {
			cl.Namespace = cluster.Namespace
			c.server.putClaim(cl)
		}
		return
	}
	truth, there := c.server.clusters[cl.Namespace]
	switch seen, known := r.known[clusters][cl.Namespace].(poolplan.Cluster); {
	case !there, truth.ClaimUID != "" && truth.ClaimUID != cl.UID, truth.Deleting && truth.ClaimUID == "":
		cl.Namespace = ""
		c.server.putClaim(cl)
	case known && truth.ClaimUID == "" && seen.ResourceVersion == truth.ResourceVersion:
		c.say("bound %s to %s", cl.Name, cl.Namespace)
		c.server.record(cl, cl.Namespace)
	}
}

func (c *chaos) free(r *replica) (poolplan.Cluster, bool) {
	named := map[string]bool{}
	for _, name := range sortedKeys(r.known[claims]) {
		named[r.known[claims][name].(claim).Namespace] = true
	}
	for _, name := range sortedKeys(r.known[clusters]) {
		cluster := r.known[clusters][name].(poolplan.Cluster)
		if cluster.Installed && cluster.ClaimUID == "" && !cluster.Deleting && !cluster.Marked && !named[name] {
			return cluster, true
		}
	}
	return poolplan.Cluster{}, false
}

// deletions lets one cluster or namespace that is being deleted go.
func (c *chaos) deletions(all bool) {
	for _, name := range c.server.names() {
		if cd := c.server.clusters[name]; cd.Deleting && (all || c.server.now.Sub(cd.Created) > gentleDeletion) {
			c.server.removeCluster(name)
			if !all {
				return
			}
		}
	}
	for _, name := range sortedKeys(c.server.namespaces) {
		if _, occupied := c.server.clusters[name]; c.server.namespaces[name].Deleting && !occupied {
			delete(c.server.namespaces, name)
			c.server.log(namespaces, name, nil)
			if !all {
				return
			}
		}
	}
}
