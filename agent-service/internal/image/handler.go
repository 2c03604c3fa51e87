// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package image serves discovery images: a live image, configured by address and checksum, with an overlay for each InfraEnv that is put on while it
// is sent, without a copy. It depends on nothing else of the service, so that it can run as a process of its own.
package image

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"
)

// Options of a handler.
type Options struct {
	Catalog *Catalog
	Source  Source
	// URL is where this handler is reached, without a slash at the end; iPXE scripts have it.
	URL string
}

// Handler serves
//
//	/images/{key}/{file}.iso         the image
//	/images/{key}/pxe-initrd         the initial RAM disk with the overlay
//	/images/{key}/ipxe-script        a script that boots the image
//	/images/{key}/boot-artifacts     its Artifacts, as JSON
//	/boot-artifacts/{kernel,rootfs}  ?version=&arch=, which need no key
//	/boot-artifacts/{version}/{arch}/{kernel,rootfs}
type Handler struct {
	Options
	// Requests, Renders, and Failures count requests for images and parts of them, overlays that were rendered, and requests that could not be served
	// through no fault of the client.
	Requests, Renders, Failures atomic.Int64

	cache cache
	mux   *http.ServeMux
}

// New makes a handler. All that it serves can be fetched in parts and has an ETag that changes with the content only.
func New(options Options) *Handler {
	h := &Handler{Options: options, mux: http.NewServeMux()}
	h.mux.HandleFunc("GET /images/{key}/{file}", h.image)
	h.mux.HandleFunc("GET /boot-artifacts/{part}", h.part)
	h.mux.HandleFunc("GET /boot-artifacts/{version}/{arch}/{part}", h.part)
	return h
}

// ServeHTTP implements http.Handler.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h.Requests.Add(1)
	h.mux.ServeHTTP(w, r)
}

// Script is the iPXE script of a key.
func (h *Handler) Script(ctx context.Context, key string) (string, error) {
	image, err := h.rendered(ctx, key)
	if err != nil {
		return "", err
	}
	return h.script(key, image), nil
}

func (h *Handler) image(w http.ResponseWriter, r *http.Request) {
	key, file := r.PathValue("key"), r.PathValue("file")
	image, err := h.rendered(r.Context(), key)
	if err != nil {
		h.refuse(w, err)
		return
	}
	switch {
	case strings.HasSuffix(file, ".iso"):
		if image.err != nil {
			h.refuse(w, image.err)
			return
		}
		w.Header().Set("Content-Disposition", `attachment; filename="`+file+`"`)
		serve(w, r, "application/x-iso9660-image", image.tag+"-iso", image.modTime, image.iso())
	case file == "pxe-initrd":
		initrd, ok := image.initrd()
		if !ok {
			h.refuse(w, errNoSuchPart)
			return
		}
		serve(w, r, "application/octet-stream", image.tag+"-initrd", image.modTime, initrd)
	case file == "boot-artifacts":
		artifacts, err := h.Artifacts(r.Context(), key)
		answer(w, artifacts, err)
	case file == "ipxe-script":
		script := h.script(key, image)
		serve(w, r, "text/plain; charset=utf-8", fmt.Sprintf("%x-ipxe", sha256.Sum256([]byte(script))), image.modTime, strings.NewReader(script))
	default:
		http.NotFound(w, r)
	}
}

func (h *Handler) rendered(ctx context.Context, key string) (*rendered, error) {
	d, err := h.Source.Describe(ctx, key)
	if err != nil {
		return nil, err
	}
	// Only this request waits for a live image, and it may be cancelled.
	if _, err := h.Catalog.Base(ctx, d.Version, d.Architecture); err != nil {
		return nil, err
	}
	revision := fmt.Sprintf("%s %s %s %t", d.Revision, d.Version, d.Architecture, d.Minimal)
	// A client that goes away must not end what others wait for too.
	return h.cache.get(d.ID, revision, func() (*rendered, error) {
		h.Renders.Add(1)
		return render(context.WithoutCancel(ctx), h.Catalog, h.Source, d, h.URL+"/boot-artifacts/")
	})
}

// networkParts are what the image of a key is started from over a network: addresses, and the kernel's command line.
type networkParts struct{ kernel, initrd, rootfs, line string }

func (h *Handler) parts(key string, image *rendered) networkParts {
	version := "?version=" + url.QueryEscape(image.base.Name) + "&arch=" + url.QueryEscape(image.base.Architecture)
	parts := networkParts{kernel: h.URL + "/boot-artifacts/kernel" + version, initrd: h.URL + "/images/" + key + "/pxe-initrd", line: image.line}
	if _, ok := image.base.files[rootfsPath]; ok {
		parts.rootfs = h.URL + "/boot-artifacts/rootfs" + version
		parts.line = commandLine(parts.line, fromAddress(parts.rootfs))
	}
	return parts
}

func (h *Handler) script(key string, image *rendered) string {
	parts := h.parts(key, image)
	return fmt.Sprintf("#!ipxe\ninitrd --name initrd %s\nkernel %s initrd=initrd %s\nboot\n", parts.initrd, parts.kernel, parts.line)
}

func (h *Handler) part(w http.ResponseWriter, r *http.Request) {
	path, ok := map[string]string{"kernel": kernelPath, "rootfs": rootfsPath}[r.PathValue("part")]
	if !ok {
		http.NotFound(w, r)
		return
	}
	version, architecture := r.PathValue("version"), r.PathValue("arch")
	if version == "" {
		version, architecture = r.URL.Query().Get("version"), r.URL.Query().Get("arch")
	}
	base, err := h.Catalog.Base(r.Context(), version, architecture)
	if err != nil {
		h.refuse(w, err)
		return
	}
	content, ok := base.part(path)
	if !ok {
		h.refuse(w, errNoSuchPart)
		return
	}
	serve(w, r, "application/octet-stream", base.SHA256[:32]+"-"+r.PathValue("part"), time.Time{}, content)
}

var errNoSuchPart = errors.New("the live image has no such part")

func serve(w http.ResponseWriter, r *http.Request, contentType, tag string, modTime time.Time, content io.ReadSeeker) {
	w.Header().Set("Content-Type", contentType)
	w.Header().Set("ETag", `"`+tag+`"`)
	w.Header().Set("Cache-Control", "no-cache")
	// A date does not tell two contents of one second from each other, which parts of them would mix.
	if condition := r.Header.Get("If-Range"); condition != "" && !strings.HasPrefix(condition, `"`) {
		r.Header.Del("Range")
	}
	http.ServeContent(w, r, "", modTime, content)
}

func (h *Handler) refuse(w http.ResponseWriter, err error) {
	if refuse(w, err) != http.StatusServiceUnavailable || errors.Is(err, context.Canceled) { // who asked has gone
		return
	}
	h.Failures.Add(1)
	if fetch := (*FetchError)(nil); !errors.As(err, &fetch) { // of those the catalog tells once
		h.Catalog.warn("did not serve an image", err)
	}
}

// refusedBy marks refusals of this package: others, such as those of proxies, say nothing about images.
const refusedBy = "Muster-Images"

// refuse answers with the status that the error knows, else 503: what goes wrong here (fetching a live image) may go well later.
func refuse(w http.ResponseWriter, err error) int {
	status, reason := classify(err)
	if status == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", "10")
	}
	w.Header().Set(refusedBy, "refused")
	http.Error(w, reason, status)
	return status
}

func classify(err error) (status int, reason string) {
	var known interface{ StatusCode() int }
	var unknown *UnknownVersionError
	var large *TooLargeError
	var away *FetchError
	switch {
	case errors.As(err, &known):
		return known.StatusCode(), err.Error()
	case errors.As(err, &unknown), errors.Is(err, errNoSuchPart):
		return http.StatusNotFound, err.Error()
	case errors.As(err, &large), errors.Is(err, errNoMinimal):
		return http.StatusConflict, err.Error()
	case errors.As(err, &away):
		return http.StatusServiceUnavailable, err.Error()
	}
	return http.StatusServiceUnavailable, "the image cannot be had at the moment"
}

// Obstacle is why an image cannot be had.
type Obstacle struct {
	Reason string
	// Lasting is true where trying again does not help.
	Lasting bool
}

func newObstacle(status int, reason string) *Obstacle {
	return &Obstacle{Reason: reason, Lasting: status < http.StatusInternalServerError}
}

// Try is what keeps the image of a key from being had, nil for nothing. It begins to fetch the live image.
func (h *Handler) Try(ctx context.Context, key string) *Obstacle {
	image, err := h.rendered(ctx, key)
	if err == nil {
		err = image.err
	}
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return &Obstacle{Reason: "its live image is still on its way"}
	}
	return newObstacle(classify(err))
}
