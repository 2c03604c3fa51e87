// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package console

import "net/http"

// follow answers with a page that leads to another one. The navigation is the console's own, so that the browser sends the session along.
func (c *console) follow(w http.ResponseWriter, title, next string) {
	c.pages.render(w, http.StatusOK, "follow", frame{Title: title, Body: followPage{Title: title, URL: next}})
}

// followPage is a page that leads to the address URL.
type followPage struct{ Title, URL string }
