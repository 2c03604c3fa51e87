// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package console

import (
	"bytes"
	"embed"
	"fmt"
	"html/template"
	"io/fs"
	"net/http"
	"path"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/muster-io/muster/agent-service/internal/console/assets"
	"github.com/muster-io/muster/agent-service/internal/console/location"
	"github.com/muster-io/muster/agent-service/internal/console/machinefilter"
	"github.com/muster-io/muster/agent-service/internal/console/session"
	"github.com/muster-io/muster/agent-service/internal/console/words"
)

// t and n are short, as templates have them: most lines of a screen ask for a text.
var t, n = words.Of, words.Count

//go:embed templates
var files embed.FS

// frame is what the layout shows around the body of a page.
type frame struct {
	Title string
	// Session is nil for visitors who are not signed in.
	Session *session.Session
	// Section is the entry of the navigation that the page belongs to.
	Section string
	// URL is the path and query of the page, which its live part is read from again.
	URL string
	// Form is true for the answer to a form, whose address is not of a page.
	Form bool
	// May is what the API lets the person do.
	May  permissions
	Body any
}

// permissions are what the API lets a person do; buttons for anything else are left out.
type permissions struct {
	// Change is false for accounts that are read-only.
	Change bool
	// Cluster is true where the Kubernetes API can be asked with the person's token.
	Cluster bool
}

// CSRF is what forms of the page have to repeat.
func (f frame) CSRF() string {
	if f.Session == nil {
		return ""
	}
	return f.Session.CSRF
}

// SignIn is where the page leads to once its session has ended.
func (f frame) SignIn() string {
	if f.Form {
		return location.SignInFor(Base + "/" + f.Section)
	}
	return location.SignInFor(f.URL)
}

// Entry is an entry of the navigation.
func (f frame) Entry(section, title string) choice {
	return choice{Label: t(title), URL: Base + "/" + section, Current: f.Section == section}
}

// pages are the templates, by name.
type pages struct {
	named map[string]*template.Template
	log   *zap.Logger
}

func newPages(now func() time.Time, log *zap.Logger) (*pages, error) {
	functions := template.FuncMap{
		"t": t, "word": func(kind string, value any) string { return words.Named(kind, fmt.Sprint(value)) }, "roles": func() []string { return machinefilter.Roles }, "base": func() string { return Base }, "asset": func(name string) (string, error) { return assets.Path(Base, name) }, "bytes": words.Size,
		"since": func(at time.Time) string { return words.Since(now().Sub(at)) },
		"stamp": func(at time.Time) string { return at.UTC().Format(time.RFC3339) },
		"clock": func(at time.Time) string { return at.UTC().Format("2006-01-02 15:04:05 UTC") },
	}
	layout, err := template.New("layout.html").Funcs(functions).ParseFS(files, "templates/layout.html", "templates/parts.html")
	if err != nil {
		return nil, fmt.Errorf("reading the layout: %w", err)
	}
	entries, err := fs.Glob(files, "templates/*.html")
	if err != nil {
		return nil, fmt.Errorf("listing pages: %w", err)
	}
	found := map[string]*template.Template{}
	for _, entry := range entries {
		name := strings.TrimSuffix(path.Base(entry), ".html")
		if name == "layout" || name == "parts" {
			continue
		}
		of, err := layout.Clone()
		if err == nil {
			of, err = of.ParseFS(files, entry)
		}
		if err != nil {
			return nil, fmt.Errorf("reading page %s: %w", name, err)
		}
		found[name] = of
	}
	return &pages{found, log}, nil
}

func (p *pages) render(w http.ResponseWriter, status int, name string, f frame) {
	var out bytes.Buffer
	if err := p.named[name].Execute(&out, f); err != nil {
		p.log.Error("rendering a page of the console", zap.String("page", name), zap.Error(err))
		http.Error(w, t("error.internal"), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write(out.Bytes())
}

// renderPart answers with a part of pages alone.
func (p *pages) renderPart(w http.ResponseWriter, name string, data any) {
	var out bytes.Buffer
	if err := p.named["error"].ExecuteTemplate(&out, name, data); err != nil {
		p.log.Error("rendering a part of a page of the console", zap.String("part", name), zap.Error(err))
		http.Error(w, t("error.internal"), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_, _ = w.Write(out.Bytes())
}

func (c *console) asset(w http.ResponseWriter, r *http.Request) {
	found, there := c.assets[r.PathValue("name")]
	if !there {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Type", found.Kind)
	w.Header().Set("Cache-Control", "public, max-age=31536000, immutable")
	_, _ = w.Write(found.Content)
}
