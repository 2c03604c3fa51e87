// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package console_test

import (
	"context"
	"fmt"
	"net/http"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"

	"github.com/muster-io/muster/agent-service/internal/console"
)

// TestAChangeLeavesWhereAPersonIs: what the keyboard is on, how far a table is scrolled, and the text that is being copied. Pages change twice a second where many machines are.
func TestAChangeLeavesWhereAPersonIs(t *testing.T) {
	t.Parallel()
	chromium := browserOf(t)
	s := newSite(t)
	admin := s.token("root", "admins")
	env := s.makeInfraEnv(admin, "rack-s")
	token := s.imageToken(admin, env)
	hosts := 0
	report := func() string {
		hosts++
		name := fmt.Sprintf("node-%d", hosts)
		s.report(token, env, uuid.NewString(), map[string]any{"hostname": name, "cpu": map[string]any{"architecture": "x86_64", "count": 16}})
		return name
	}
	report()
	report()
	changes := &stream{}
	reached, _ := s.behind(t, func(w http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path == console.Base+"/stream" {
			changes.ServeHTTP(w, r)
			return true
		}
		return false
	})
	b := reached.open(chromium, t, admin)
	b.run(chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{Width: 420, Height: 900, DeviceScaleFactor: 1})
		return err
	}))
	b.visit("/machines")
	b.sees("tbody", "node-2")
	changed := func() {
		name := report()
		changes.change(name)
		b.sees("tbody", name)
	}
	changed() // the first answers to the stream are there

	scrolled := ask[float64](b, `document.querySelector(".scroll").scrollLeft = 60, document.querySelector(".scroll").scrollLeft`)
	assert.Positive(t, scrolled)
	ask[any](b, `Array.from(document.querySelectorAll("tbody th a")).find(e => e.textContent === "node-2").focus({ preventScroll: true }), null`)
	changed()
	assert.Equal(t, "node-2", ask[string](b, `document.activeElement.textContent`), "the keyboard is where it was")
	assert.InDelta(t, scrolled, ask[float64](b, `document.querySelector(".scroll").scrollLeft`), 1)
	ask[any](b, `Array.from(document.querySelectorAll("a.only"))[1].focus({ preventScroll: true }), null`)
	changed()
	assert.Equal(t, 1, ask[int](b, `Array.from(document.querySelectorAll("a.only")).indexOf(document.activeElement)`), "one of several that are alike")

	// A text that is selected is not taken away, until it is copied.
	ask[any](b, `document.activeElement.blur(), document.getSelection().selectAllChildren(document.querySelector("tbody th a")), null`)
	ask[any](b, `document.addEventListener("htmx:afterRequest", function () { window.asked = true; }), null`)
	last := report()
	changes.change(last)
	b.until(`window.asked`)
	assert.Equal(t, "node-1", ask[string](b, `document.getSelection().toString()`))
	assert.NotContains(t, ask[string](b, `document.querySelector("tbody").textContent`), last)
	ask[any](b, `document.getSelection().removeAllRanges(), null`)
	b.sees("tbody", last)
}
