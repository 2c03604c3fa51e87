// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package scripts

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A decision has a number, a title and a date, and its line in the list.
func TestDecisionsAreListed(t *testing.T) {
	dir := hack(t, "../docs/adr")
	list, err := os.ReadFile(filepath.Join(dir, "README.md"))
	require.NoError(t, err)
	pages, err := filepath.Glob(filepath.Join(dir, "0*.md"))
	require.NoError(t, err)
	require.NotEmpty(t, pages)
	for _, page := range pages {
		text, err := os.ReadFile(page)
		require.NoError(t, err)
		title := regexp.MustCompile(`^# (\d+\. .+)\n\nDate: \d{4}-\d\d-\d\d\. Status: [a-z]`).FindSubmatch(text)
		if assert.NotNil(t, title, "%s begins with its title and its date", filepath.Base(page)) {
			assert.Contains(t, string(list), "- ["+string(title[1])+"]("+filepath.Base(page)+")\n", "docs/adr/README.md")
		}
	}
	assert.Len(t, regexp.MustCompile(`(?m)^- \[`).FindAll(list, -1), len(pages), "lines of docs/adr/README.md")
}
