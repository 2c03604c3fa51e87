// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package httpapi

import (
	"errors"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/muster-io/muster/agent-service/internal/domain"
)

// TestAListThatChangesWhileItIsReadIsWhole: each object is in it once that was there all the time.
func TestAListThatChangesWhileItIsReadIsWhole(t *testing.T) {
	for name, change := range map[string]func(all []int) []int{
		"nothing changes":    func(all []int) []int { return all },
		"the first one goes": func(all []int) []int { return all[1:] },
		"one comes":          func(all []int) []int { return append(all, 100) },
	} {
		t.Run(name, func(t *testing.T) {
			all := []int{0, 1, 2, 3, 4, 5, 6}
			read := 0
			found, err := whole(nil, new(1), func(page domain.Page) (domain.List[int], error) {
				assert.Equal(t, domain.LargestPage, page.Limit)
				from := min(page.Offset, len(all))
				answer := domain.List[int]{Items: slices.Clone(all[from:min(from+3, len(all))]), Total: len(all)}
				if read++; read == 1 {
					all = change(all)
				}
				return answer, nil
			})
			require.NoError(t, err)
			assert.Equal(t, all[1:], found.Items)
			assert.Equal(t, len(all), found.Total)
		})
	}
	reads := 0
	_, err := whole(nil, nil, func(page domain.Page) (domain.List[int], error) { // it never stands still
		reads++
		return domain.List[int]{Items: []int{page.Offset}, Total: 2 + page.Offset}, nil
	})
	require.NoError(t, err)
	assert.Equal(t, 2*mostReads, reads)
	one, err := whole(new(2), new(1), func(page domain.Page) (domain.List[int], error) {
		assert.Equal(t, domain.Page{Limit: 2, Offset: 1}, page)
		return domain.List[int]{Items: []int{1, 2}, Total: 9}, nil
	})
	require.NoError(t, err)
	assert.Equal(t, []int{1, 2}, one.Items)
	_, err = whole(nil, nil, func(domain.Page) (domain.List[int], error) { return domain.List[int]{}, errors.New("away") })
	require.Error(t, err)
}
