// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package httpapi

import (
	"encoding/json"

	"github.com/google/uuid"
	"github.com/oapi-codegen/nullable"

	"github.com/muster-io/muster/agent-service/internal/domain"
)

// set takes over a field of a PATCH: one that is absent leaves what is there, null clears it.
func set[T any](into *T, field nullable.Nullable[T]) {
	if !field.IsSpecified() {
		return
	}
	var zero T
	*into = zero
	if value, err := field.Get(); err == nil {
		*into = value
	}
}

// setAs is set for fields that the domain has in another form.
func setAs[T, D any](into *D, field nullable.Nullable[T], convert func(T) D) {
	if !field.IsSpecified() {
		return
	}
	var zero D
	*into = zero
	if value, err := field.Get(); err == nil {
		*into = convert(value)
	}
}

// setList takes over a list of a PATCH. null leaves what is there, as an absent field does: clients that are generated from the published description of
// assisted-service send null for every list that they do not set. An empty list clears it.
func setList[T, D any](into *D, field nullable.Nullable[[]T], convert func([]T) D) {
	if list, err := field.Get(); err == nil {
		*into = convert(list)
	}
}

// value is what a nullable field holds, or nothing.
func value[T any](field nullable.Nullable[T]) T {
	v, _ := field.Get()
	return v
}

// given is what an optional parameter holds, or nothing.
func given[T any](p *T) T {
	if p == nil {
		var zero T
		return zero
	}
	return *p
}

// id is a UUID of the domain, the zero UUID (which is left out of answers) for none.
func id(text string) uuid.UUID {
	parsed, err := uuid.Parse(text)
	if err != nil {
		return uuid.UUID{}
	}
	return parsed
}

// optional is the text of an optional id, empty for none.
func optional(u *uuid.UUID) string {
	if u == nil {
		return ""
	}
	return u.String()
}

func key(infraEnv, host uuid.UUID) domain.HostKey {
	return domain.HostKey{InfraEnvID: infraEnv.String(), HostID: host.String()}
}

// text is the JSON of a value as a string field, empty for nothing.
func text(v any) string {
	raw, err := json.Marshal(v)
	if err != nil || string(raw) == "null" || string(raw) == "[]" || string(raw) == "{}" {
		return ""
	}
	return string(raw)
}

// mostReads is how often a list that changes while it is read is begun again.
const mostReads = 5

// whole collects all pages of a list for a request without a limit, and one page for others. An object that goes while pages are read moves those after it, so that one of them
// would be missing: such a list is read again.
func whole[T any](limit, offset *int, list func(domain.Page) (domain.List[T], error)) (domain.List[T], error) {
	if given(limit) > 0 {
		return list(domain.Page{Limit: *limit, Offset: given(offset)})
	}
	for read := 1; ; read++ {
		found, same, err := pages(given(offset), list)
		if err != nil || same || read == mostReads {
			return found, err
		}
	}
}

// pages collects all pages from an offset on. same is true where each page belongs to as many objects as the first one.
func pages[T any](offset int, list func(domain.Page) (domain.List[T], error)) (found domain.List[T], same bool, err error) {
	if found, err = list(domain.Page{Limit: domain.LargestPage, Offset: offset}); err != nil {
		return found, false, err
	}
	for same = true; offset+len(found.Items) < found.Total; {
		more, err := list(domain.Page{Limit: domain.LargestPage, Offset: offset + len(found.Items)})
		if err != nil {
			return found, false, err
		}
		same = same && more.Total == found.Total
		if len(more.Items) == 0 {
			break
		}
		found.Items = append(found.Items, more.Items...)
	}
	return found, same, nil
}
