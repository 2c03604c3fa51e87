// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package console

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"html/template"
	"io/fs"
	"mime"
	"net/http"
	"path"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/muster-io/muster/agent-service/internal/console/session"
	"github.com/muster-io/muster/agent-service/internal/console/words"
)

// t and n are short, as templates have them: most lines of a screen ask for a text.
var t, n = words.Of, words.Count

//go:embed templates assets
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
		"t": t, "base": func() string { return Base }, "asset": assetPath, "bytes": byteSize,
		"since": func(at time.Time) string { return since(now().Sub(at)) },
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

// asset is a file that pages load.
type asset struct {
	kind, sum string
	content   []byte
}

// newAssets reads the files, whose addresses hold a part of their checksums.
func newAssets() (map[string]asset, error) {
	entries, err := fs.ReadDir(files, "assets")
	if err != nil {
		return nil, fmt.Errorf("listing assets: %w", err)
	}
	found := map[string]asset{}
	for _, entry := range entries {
		content, err := files.ReadFile("assets/" + entry.Name())
		if err != nil {
			return nil, fmt.Errorf("reading an asset: %w", err)
		}
		found[entry.Name()] = asset{mime.TypeByExtension(path.Ext(entry.Name())), sumOf(content), content}
	}
	return found, nil
}

func sumOf(content []byte) string {
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:])
}

// assetPath is the address of an asset; it changes with the content, so that browsers may keep it.
func assetPath(name string) (string, error) {
	content, err := files.ReadFile("assets/" + name)
	if err != nil {
		return "", fmt.Errorf("reading an asset: %w", err)
	}
	return Base + "/assets/" + name + "?v=" + sumOf(content)[:12], nil
}

func (c *console) asset(w http.ResponseWriter, r *http.Request) {
	found, there := c.assets[r.PathValue("name")]
	if !there {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Type", found.kind)
	w.Header().Set("Cache-Control", "public, max-age=31536000, immutable")
	_, _ = w.Write(found.content)
}

// byteSize is a size for people: 480 GB, 64 GiB where binary.
func byteSize(n int64, binary bool) string {
	step, units := int64(1000), []string{"B", "kB", "MB", "GB", "TB", "PB"}
	if binary {
		step, units = 1024, []string{"B", "KiB", "MiB", "GiB", "TiB", "PiB"}
	}
	i := 0
	value := float64(n)
	for value >= float64(step) && i < len(units)-1 {
		value /= float64(step)
		i++
	}
	if value >= 10 || value == float64(int64(value)) {
		return fmt.Sprintf("%.0f %s", value, units[i])
	}
	return fmt.Sprintf("%.1f %s", value, units[i])
}

// since is how long ago something was, in its largest unit.
func since(d time.Duration) string {
	switch {
	case d < 5*time.Second:
		return t("since.now")
	case d < time.Minute:
		return t("since.seconds", int(d.Seconds()))
	case d < time.Hour:
		return t("since.minutes", int(d.Minutes()))
	case d < 48*time.Hour:
		return t("since.hours", int(d.Hours()))
	default:
		return t("since.days", int(d.Hours()/24))
	}
}
