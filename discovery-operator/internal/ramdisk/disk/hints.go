// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package disk

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// minimum is the size in bytes of the smallest disk that is chosen without hints.
const minimum = 4 << 30

// Hints say which disk is meant, as Ironic's property root_device does: an operator and a value for each attribute.
type Hints map[string]any

// operators are those of Ironic's hints. A longer one stands before each that it begins with.
var operators = []string{"<all-in>", "<or>", "<in>", "s==", "s!=", "s<=", "s>=", "s<", "s>", "==", "!=", "<=", ">=", "<", ">", "="}

// Root chooses the disk that the hints mean: the first one of those that match, or without hints the smallest one of at least minimum bytes. It fails
// with a sentence that lists the disks.
func Root(disks []Disk, hints Hints) (Disk, error) {
	if len(hints) == 0 {
		fitting := slices.DeleteFunc(slices.Clone(disks), func(d Disk) bool { return d.Size < minimum })
		if len(fitting) == 0 {
			return Disk{}, fmt.Errorf("no disk has at least %d GiB, and no root device hints choose a smaller one: the machine has %s", minimum>>30, list(disks))
		}
		return slices.MinFunc(fitting, func(a, b Disk) int { return cmp.Or(cmp.Compare(a.Size, b.Size), cmp.Compare(a.Name, b.Name)) }), nil
	}
	for _, d := range disks {
		matches, err := d.Matches(hints)
		if err != nil {
			return Disk{}, err
		}
		if matches {
			return d, nil
		}
	}
	text, _ := json.Marshal(hints) //nolint:errchkjson // it was JSON
	return Disk{}, fmt.Errorf("no disk matches the root device hints %s: the machine has %s", text, list(disks))
}

func list(disks []Disk) string {
	if len(disks) == 0 {
		return "no disk"
	}
	names := make([]string, 0, len(disks))
	for _, d := range disks {
		names = append(names, fmt.Sprintf("%s (%d bytes)", d.Name, d.Size))
	}
	return strings.Join(names, ", ")
}

// Matches reports whether a disk has all attributes that the hints name.
func (d Disk) Matches(hints Hints) (bool, error) {
	text := map[string]string{
		"name": d.Name, "by_path": d.ByPath, "model": d.Model, "vendor": d.Vendor, "serial": d.Serial, "wwn": d.WWN,
		"wwn_with_extension": d.WWNWithExtension, "wwn_vendor_extension": d.WWNVendorExtension, "hctl": d.HCTL,
	}
	for _, key := range slices.Sorted(maps.Keys(hints)) {
		want := strings.TrimSpace(fmt.Sprint(hints[key]))
		var matches bool
		var err error
		value, known := text[key]
		switch {
		case key == "size":
			matches, err = compare(strconv.FormatFloat(float64(d.Size)/(1<<30), 'f', -1, 64), want, "==")
		case key == "rotational":
			var rotational bool
			rotational, err = strconv.ParseBool(strings.ToLower(want))
			matches = rotational == d.Rotational
		case known:
			matches, err = compare(strings.ToLower(strings.TrimSpace(value)), strings.ToLower(want), "s==")
			matches = matches && value != ""
		default:
			err = errors.New("there is no such hint")
		}
		if err != nil {
			return false, fmt.Errorf("root device hint %s %q: %w", key, want, err)
		}
		if !matches {
			return false, nil
		}
	}
	return true, nil
}

// compare applies the operator that an expression begins with, or else the usual one.
func compare(value, expression, usual string) (bool, error) {
	operator, operand := usual, expression
	for _, o := range operators {
		if rest, ok := strings.CutPrefix(expression, o); ok {
			operator, operand = o, strings.TrimSpace(rest)
			break
		}
	}
	switch operator {
	case "<in>":
		return strings.Contains(value, operand), nil
	case "<or>":
		return slices.ContainsFunc(strings.Split(operand, "<or>"), func(one string) bool { return strings.TrimSpace(one) == value }), nil
	case "<all-in>":
		return !slices.ContainsFunc(strings.Split(operand, "<all-in>"), func(one string) bool { return !strings.Contains(value, strings.TrimSpace(one)) }), nil
	}
	if order, ok := strings.CutPrefix(operator, "s"); ok {
		return holds(order, cmp.Compare(value, operand)), nil
	}
	a, errA := strconv.ParseFloat(value, 64)
	b, errB := strconv.ParseFloat(operand, 64)
	if err := errors.Join(errA, errB); err != nil {
		return false, errors.New("it compares numbers, and one is none")
	}
	if operator == "=" { // Ironic reads a single = as "at least"
		operator = ">="
	}
	return holds(operator, cmp.Compare(a, b)), nil
}

func holds(operator string, order int) bool {
	switch operator {
	case "==":
		return order == 0
	case "!=":
		return order != 0
	case "<":
		return order < 0
	case "<=":
		return order <= 0
	case ">":
		return order > 0
	}
	return order >= 0
}
