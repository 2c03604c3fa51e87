// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package ipset

// The tree is a treap: a search tree by address and a heap by priority. The priority is a hash of the interval's first
// address, so that the shape of a tree is a function of its content and needs no random numbers.

type interval struct{ first, last Number }

type node struct {
	interval
	priority    uint64
	count       Number // addresses in this branch
	left, right *node
}

func newNode(i interval) *node {
	n := &node{interval: i, priority: mix(i.first.Hi ^ mix(i.first.Lo))}
	n.update()
	return n
}

// mix spreads a number over all 64 bits.
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

func (n *node) total() Number {
	if n == nil {
		return Number{}
	}
	return n.count
}

func (n *node) size() Number { return n.last.minus(n.first).next() }

func (n *node) update() {
	n.count = n.left.total().Plus(n.size()).Plus(n.right.total())
}

func (n *node) walk(visit func(interval) bool) bool {
	return n == nil || n.left.walk(visit) && visit(n.interval) && n.right.walk(visit)
}

// overlapping visits in order the intervals that share a number with one, until visit returns false.
func (n *node) overlapping(with interval, visit func(interval) bool) bool {
	if n == nil {
		return true
	}
	if with.first.less(n.first) && !n.left.overlapping(with, visit) {
		return false
	}
	if !n.last.less(with.first) && !with.last.less(n.first) && !visit(n.interval) {
		return false
	}
	return !n.last.less(with.last) || n.right.overlapping(with, visit)
}

func (n *node) clone() *node {
	if n == nil {
		return nil
	}
	twin := *n
	twin.left, twin.right = n.left.clone(), n.right.clone()
	return &twin
}

// split divides a branch: intervals that begin before at, and the others.
func split(n *node, at Number) (before, rest *node) {
	if n == nil {
		return nil, nil
	}
	if n.first.less(at) {
		n.right, rest = split(n.right, at)
		n.update()
		return n, rest
	}
	before, n.left = split(n.left, at)
	n.update()
	return before, n
}

// splitAfter divides a branch: intervals that begin at or before at, and the others.
func splitAfter(n *node, at Number) (before, rest *node) {
	if at == greatest {
		return n, nil
	}
	return split(n, at.next())
}

// join puts two branches together; every interval of left lies before every one of right.
func join(left, right *node) *node {
	switch {
	case left == nil:
		return right
	case right == nil:
		return left
	case left.priority >= right.priority:
		left.right = join(left.right, right)
		left.update()
		return left
	default:
		right.left = join(left, right.left)
		right.update()
		return right
	}
}

// cutLast takes the last interval out of a branch.
func cutLast(n *node) (rest, last *node) {
	if n == nil {
		return nil, nil
	}
	if n.right == nil {
		rest = n.left
		n.left = nil
		n.update()
		return rest, n
	}
	n.right, last = cutLast(n.right)
	n.update()
	return n, last
}

// add makes the union with one interval; neighbours that it overlaps or touches become part of it.
func (s *Set) add(i interval) {
	before, rest := split(s.root, i.first)
	before, neighbour := cutLast(before)
	if neighbour != nil {
		if !neighbour.last.less(i.first) || neighbour.last.precedes(i.first) {
			i.first = neighbour.first
			if i.last.less(neighbour.last) {
				i.last = neighbour.last
			}
		} else {
			before = join(before, neighbour)
		}
	}
	swallowed, after := splitAfter(rest, i.last)
	if _, last := cutLast(swallowed); last != nil && i.last.less(last.last) {
		i.last = last.last
	}
	if next := after.lowest(); next != nil && i.last.precedes(next.first) {
		i.last = next.last
		_, after = splitAfter(after, next.first)
	}
	s.root = join(join(before, newNode(i)), after)
}

// remove takes every address of an interval out, shortening or dividing the intervals at its ends.
func (s *Set) remove(i interval) {
	before, rest := split(s.root, i.first)
	inside, after := splitAfter(rest, i.last)
	if _, last := cutLast(inside); last != nil && i.last.less(last.last) {
		after = join(newNode(interval{i.last.next(), last.last}), after)
	}
	before, neighbour := cutLast(before)
	if neighbour != nil {
		if !neighbour.last.less(i.first) {
			if i.last.less(neighbour.last) {
				after = join(newNode(interval{i.last.next(), neighbour.last}), after)
			}
			neighbour = newNode(interval{neighbour.first, i.first.previous()})
		}
		before = join(before, neighbour)
	}
	s.root = join(before, after)
}

func (n *node) lowest() *node {
	for n != nil && n.left != nil {
		n = n.left
	}
	return n
}
