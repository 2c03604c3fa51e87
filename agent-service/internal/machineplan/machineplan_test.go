// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package machineplan

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var now = time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)

// free is a machine that can be taken, changed.
func free(name string, change ...func(*Machine)) Machine {
	m := Machine{Name: name, Free: true, Approved: true, Worker: true, Valid: true, Size: Size{CPUs: 8, Memory: 32 * gib, Disk: 200 * gb}}
	for _, one := range change {
		one(&m)
	}
	return m
}

// has is a machine of the pool.
func has(name string, phase Phase, change ...func(*Machine)) Machine {
	m := free(name, func(m *Machine) { m.Mine, m.Bound, m.Ours, m.Free, m.Phase = true, true, true, false, phase })
	for _, one := range change {
		one(&m)
	}
	return m
}

func names(machines []Machine) []string {
	found := []string{}
	for i := range machines {
		found = append(found, machines[i].Name)
	}
	return found
}

func TestMachinesThatCannotBeTakenAreCountedByWhy(t *testing.T) {
	minimum := MinimumOf(4, 32, 100)
	memory := func(gigabytes int64) func(*Machine) {
		return func(m *Machine) { m.Size.Memory = gigabytes * gib }
	}
	for sentence, test := range map[string]struct {
		machines []Machine
		want     string
	}{
		"nothing matches": {nil, "no Agent matches"},
		"one machine":     {[]Machine{free("a", func(m *Machine) { m.Approved = false })}, "1 Agent matches; 1 not approved"},
		"all that the issue lists": {
			append(many(7, func(m *Machine) { m.Bound = true }),
				free("a", func(m *Machine) { m.Approved = false }), free("b", func(m *Machine) { m.Approved = false }),
				free("c", func(m *Machine) { m.SilentSince = now.Add(-5 * time.Minute) }), free("d", memory(4)), free("e", memory(8))),
			"12 Agents match; 7 bound, 2 not approved, 1 silent since 4m, 2 too small: 8 of 32 GiB",
		},
		"reserved by Cluster API": {[]Machine{free("a", func(m *Machine) { m.Reserved = true })}, "1 Agent matches; 1 reserved"},
		"not released":            {[]Machine{free("a", func(m *Machine) { m.Free = false })}, "1 Agent matches; 1 not free yet"},
		"no consent": {
			[]Machine{free("a", func(m *Machine) { m.Forbidden = "InfraEnv rack does not allow namespace blue" })},
			"1 Agent matches; 1 not for this cluster: InfraEnv rack does not allow namespace blue",
		},
		"for the control plane": {[]Machine{free("a", func(m *Machine) { m.Worker = false })}, "1 Agent matches; 1 not for workers"},
		"invalid":               {[]Machine{free("a", func(m *Machine) { m.Valid = false })}, "1 Agent matches; 1 with failing validations"},
		"going":                 {[]Machine{free("a", func(m *Machine) { m.Deleting = true })}, "1 Agent matches; 1 being deleted"},
		"addresses are exhausted": {
			append(many(2, func(m *Machine) { m.NoAddress = "IPPool rack-a" }), free("a", func(m *Machine) { m.Approved, m.NoAddress = false, "IPPool rack-a" })),
			"3 Agents match; 1 not approved, 2 without an address: IPPool rack-a has none free",
		},
		"too few processors": {[]Machine{free("a", func(m *Machine) { m.Size.CPUs = 2 })}, "1 Agent matches; 1 too small: 2 of 4 processors"},
		"too small a disk":   {[]Machine{free("a", func(m *Machine) { m.Size.Disk = 50 * gb })}, "1 Agent matches; 1 too small: disk of 50 of 100 GB"},
	} {
		t.Run(sentence, func(t *testing.T) {
			d := Plan(Pool{Replicas: 1, Minimum: minimum}, test.machines, now)
			assert.Equal(t, test.want, d.Why)
			assert.Empty(t, d.Candidates)
			assert.Equal(t, 1, d.Take)
		})
	}
}

func many(n int, change func(*Machine)) []Machine {
	var machines []Machine
	for i := range n {
		machines = append(machines, free(fmt.Sprintf("m%d", i), change))
	}
	return machines
}

func TestMachinesReportLessMemoryThanIsBuiltIn(t *testing.T) {
	reported := free("a", func(m *Machine) { m.Size.Memory = 32*gib - 300<<20 })
	assert.Equal(t, []string{"a"}, names(Plan(Pool{Replicas: 1, Minimum: MinimumOf(0, 32, 0)}, []Machine{reported}, now).Candidates))
}

func TestTheTightestFitIsTakenFirst(t *testing.T) {
	size := func(cpus, memory int64) func(*Machine) {
		return func(m *Machine) { m.Size.CPUs, m.Size.Memory = cpus, memory*gib }
	}
	machines := []Machine{free("c", size(16, 64)), free("b", size(8, 32)), free("a", size(8, 32)), free("d", size(4, 32))}
	assert.Equal(t, []string{"d", "a", "b", "c"}, names(Plan(Pool{Replicas: 4}, machines, now).Candidates))
}

func TestPoolsTryMachinesOfOneSizeInDifferentOrders(t *testing.T) {
	first := map[string]bool{}
	for i := range 20 {
		machines := append(many(50, func(*Machine) {}), free("large", func(m *Machine) { m.Size.Memory *= 2 }))
		tried := names(Plan(Pool{Name: fmt.Sprintf("ns/pool-%d", i), Replicas: 3}, machines, now).Candidates)
		assert.Equal(t, "large", tried[50], "the tightest fit first")
		assert.Equal(t, tried, names(Plan(Pool{Name: fmt.Sprintf("ns/pool-%d", i), Replicas: 3}, machines, now).Candidates), "the same each time")
		first[tried[0]] = true
	}
	assert.Greater(t, len(first), 10, "20 pools try more than 10 of 50 machines first")
}

func TestMachinesAreSpread(t *testing.T) {
	in := func(rack string) func(*Machine) { return func(m *Machine) { m.Spread = rack } }
	machines := []Machine{
		has("x", Ready, in("a")), has("y", Ready, in("a")), free("a1", in("a")), free("b1", in("b")), free("b2", in("b")), free("c1", in("c")), free("b3", in("b")),
	}
	assert.Equal(t, []string{"b1", "c1", "b2", "a1", "b3"}, names(Plan(Pool{Replicas: 7, Spread: true}, machines, now).Candidates))
	assert.Equal(t, []string{"a1", "b1", "b2", "b3", "c1"}, names(Plan(Pool{Replicas: 7}, machines, now).Candidates))
}

func TestTheLeastUsefulMachineIsReleasedFirst(t *testing.T) {
	at := func(minute int) func(*Machine) {
		return func(m *Machine) { m.BoundAt = now.Add(time.Duration(minute) * time.Minute) }
	}
	marked := func(m *Machine) { m.DeleteFirst = true }
	for sentence, test := range map[string]struct {
		replicas int
		machines []Machine
		want     []string
	}{
		"failed before all":            {1, []Machine{has("a", Ready), has("b", Failed)}, []string{"b"}},
		"before its node is Ready":     {1, []Machine{has("a", Ready), has("b", Joining)}, []string{"b"}},
		"the newest of equals":         {2, []Machine{has("a", Ready, at(1)), has("b", Ready, at(3)), has("c", Ready, at(2))}, []string{"b"}},
		"what the user marks":          {2, []Machine{has("a", Ready, at(1), marked), has("b", Ready, at(3)), has("c", Ready, at(2))}, []string{"a"}},
		"all at once where it is safe": {1, []Machine{has("a", Ready), has("b", Ready), has("c", Ready), has("d", Joining)}, []string{"d", "a", "b"}},
		"one at a time where it is not": {
			2, []Machine{has("a", Ready), has("b", Installing), has("c", Installing), has("d", Binding)}, []string{"d"},
		},
		"not before that one is gone": {
			2, []Machine{has("a", Ready), has("b", Installing), has("c", Installing), has("d", Releasing, func(m *Machine) { m.Ours, m.Bound = false, false })}, []string{},
		},
		"the next one after one that has left and does not come back": {
			3, []Machine{
				has("a", Ready), has("b", Ready), has("c", Joining, at(1)), has("d", Joining, at(2)),
				has("e", Releasing, func(m *Machine) { m.Ours, m.Bound, m.Left = false, false, true }),
			}, []string{"d"},
		},
		"all of them": {0, []Machine{has("a", Installing), has("b", Binding)}, []string{"b", "a"}},
	} {
		t.Run(sentence, func(t *testing.T) {
			assert.Equal(t, test.want, names(Plan(Pool{Replicas: test.replicas, Blocked: true}, test.machines, now).Release))
		})
	}
}

func TestLabelsOfAMachineThatIsNotThePoolsAnyMoreAreForgotten(t *testing.T) {
	machines := []Machine{
		has("moved", Ready, func(m *Machine) { m.Ours = false }),
		has("gone", Ready, func(m *Machine) { m.Deleting = true; m.Ours = false }),
		has("freed", Ready, func(m *Machine) { m.Ours, m.Bound, m.Free = false, false, true }),
		has("leaves", Releasing, func(m *Machine) { m.Ours, m.Bound = false, false }),
	}
	d := Plan(Pool{Replicas: 0}, machines, now)
	assert.Equal(t, []string{"moved", "gone", "freed"}, names(d.Forget))
	assert.Empty(t, d.Release)
}

func TestABlockedPoolTakesNothing(t *testing.T) {
	d := Plan(Pool{Replicas: 1, Blocked: true}, []Machine{free("a")}, now)
	assert.Empty(t, d.Candidates)
	assert.Equal(t, "1 Agent matches; 1 free", d.Why)
}

// FuzzPlan runs a pool with random machines until nothing is left to do.
func FuzzPlan(f *testing.F) {
	for seed := range uint64(8) {
		f.Add(seed, seed%7)
	}
	f.Fuzz(func(t *testing.T, seed, replicas uint64) {
		simulate(t, rand.New(rand.NewPCG(seed, replicas)), int(replicas%9))
	})
}

func simulate(t *testing.T, random *rand.Rand, replicas int) {
	t.Helper()
	yes := func() bool { return random.IntN(2) == 0 }
	often := func() bool { return random.IntN(4) > 0 }
	machines := make([]Machine, random.IntN(20))
	for i := range machines {
		machines[i] = Machine{
			Name: fmt.Sprint(i), Mine: yes(), Bound: yes(), Reserved: random.IntN(9) == 0, Deleting: random.IntN(9) == 0, Approved: often(), Worker: often(), Valid: often(),
			Size: Size{CPUs: random.Int64N(8)}, Spread: fmt.Sprint(random.IntN(3)), Phase: Phase(random.IntN(5)), BoundAt: now.Add(time.Duration(random.IntN(5)) * time.Hour),
		}
		m := &machines[i]
		m.Free = !m.Bound && yes()
		m.Left = !m.Bound && yes()
		m.Ours = m.Bound && yes()
		if yes() {
			m.SilentSince = now.Add(-time.Hour)
		}
	}
	pool := Pool{Replicas: replicas, Minimum: Size{CPUs: 2}, Spread: yes()}
	count := func() (n int) {
		for i := range machines {
			if machines[i].Counts() {
				n++
			}
		}
		return n
	}
	for round := 0; ; round++ {
		require.Less(t, round, 100, "it does not come to an end")
		d := Plan(pool, machines, now)
		for _, c := range d.Candidates {
			require.True(t, c.Free && !c.Bound && !c.Reserved && !c.Deleting && c.Approved && c.Valid && c.Worker && c.SilentSince.IsZero() && c.Size.CPUs >= 2, "%+v was taken", c)
		}
		before := count()
		changed := d.apply(machines)
		after := count()
		require.LessOrEqual(t, after, max(before, replicas), "more than wanted")
		require.GreaterOrEqual(t, after, min(before, replicas), "fewer than wanted")
		if !changed {
			require.True(t, after == replicas || after < replicas && d.Why != "" && len(d.Candidates) == 0, "%d of %d and no reason", after, replicas)
			return
		}
	}
}

// apply does what was decided, and lets what was released be free.
func (d Decision) apply(machines []Machine) (changed bool) {
	find := func(name string) *Machine {
		for i := range machines {
			if machines[i].Name == name {
				return &machines[i]
			}
		}
		return nil
	}
	for i := range d.Candidates[:min(d.Take, len(d.Candidates))] {
		m := find(d.Candidates[i].Name)
		m.Mine, m.Bound, m.Ours, m.Free, m.Left, m.Phase = true, true, true, false, false, Binding
		changed = true
	}
	for _, forgotten := range d.Forget {
		find(forgotten.Name).Mine = false
		changed = true
	}
	for i := range machines {
		if m := &machines[i]; m.Mine && !m.Bound && !m.Free && !m.Deleting {
			m.Free, changed = true, true
		}
	}
	for _, released := range d.Release {
		m := find(released.Name)
		m.Bound, m.Ours = false, false
		changed = true
	}
	return changed
}

func TestAPoolThatLacksNothingIsPlannedFromItsOwnMachines(t *testing.T) {
	own := []Machine{
		has("a", Ready), has("b", Failed), has("c", Binding, func(m *Machine) { m.DeleteFirst = true }),
		has("left", Releasing, func(m *Machine) { m.Ours, m.Bound, m.Left = false, false, true }), has("deleting", Ready, func(m *Machine) { m.Deleting = true }),
		free("back", func(m *Machine) { m.Mine = true }),
	}
	others := append(many(20, func(m *Machine) { m.Bound = true }), many(20, func(*Machine) {})...)
	for replicas := range 4 {
		pool := Pool{Name: "p", Replicas: replicas, Refused: "others are refused"}
		assert.Equal(t, replicas-3, Missing(pool, own))
		assert.Equal(t, Missing(pool, own), Missing(pool, append(others, own...)))
		assert.Equal(t, Plan(pool, own, now), Plan(pool, append(others, own...), now), "%d are wanted", replicas)
	}
	assert.Equal(t, 1, Missing(Pool{Replicas: 4}, own))
}
