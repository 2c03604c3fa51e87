// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package console serves screens for people, in a browser. It is a client of REST v2: each page is made of what the API answers to the token of the person
// who is signed in, so that it shows and does no more than the API allows.
package console

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"go.uber.org/zap"
	"k8s.io/client-go/rest"

	"github.com/muster-io/muster/agent-service/api"
	"github.com/muster-io/muster/agent-service/client"
	"github.com/muster-io/muster/agent-service/internal/console/assets"
	"github.com/muster-io/muster/agent-service/internal/console/inprocess"
	"github.com/muster-io/muster/agent-service/internal/console/kubeclient"
	"github.com/muster-io/muster/agent-service/internal/console/location"
	"github.com/muster-io/muster/agent-service/internal/console/oidc"
	"github.com/muster-io/muster/agent-service/internal/console/session"
	"github.com/muster-io/muster/agent-service/internal/eventstream"
)

// Base is the path below which all screens are.
const Base = location.Base

// csrfField is the field of forms that repeats the CSRF token of the session.
const csrfField = "csrf"

// maxForm bounds what a form sends: a pull secret and the configuration of many networks.
const maxForm = 4 << 20

// Options are what the console needs.
type Options struct {
	// API serves REST v2. It is called within the process.
	API http.Handler
	// Key is secret, and the same for all replicas: sessions are encrypted with it.
	Key []byte
	// URL is where browsers reach the console, without Base; empty where that is not known.
	URL string
	// HTTPS is true where browsers reach the service by TLS: the cookie of a session is sent by no other way.
	HTTPS bool
	// Kubernetes says where the Kubernetes API is, nil where there is none. Its credentials are not used.
	Kubernetes *rest.Config
	// SignIn is the issuer where people sign in, nil where they paste tokens only.
	SignIn *oidc.Client
	Log    *zap.Logger
	// Now is the clock, time.Now if nil.
	Now func() time.Time
}

type console struct {
	Options
	vault  *session.Vault
	pages  *pages
	assets map[string]assets.Asset
	shared shared
	// kubernetes is nil where there is no Kubernetes API.
	kubernetes *kubeclient.Clients
}

// New makes the handler of all paths below Base.
func New(o Options) (http.Handler, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	vault, err := session.NewVault(o.Key, Base, o.Now)
	if err != nil {
		return nil, err
	}
	pages, err := newPages(o.Now, o.Log)
	if err != nil {
		return nil, err
	}
	loaded, err := assets.Read()
	if err != nil {
		return nil, err
	}
	c := &console{Options: o, vault: vault, pages: pages, assets: loaded}
	if o.Kubernetes != nil {
		if c.kubernetes, err = kubeclient.New(o.Kubernetes); err != nil {
			return nil, err
		}
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+Base+"/assets/{name}", c.asset)
	mux.HandleFunc("GET "+Base+"/sign-in", c.signInPage)
	mux.HandleFunc("POST "+Base+"/sign-in", c.signIn)
	if c.SignIn != nil {
		mux.HandleFunc("GET "+flowPath, c.startFlow)
		mux.HandleFunc("GET "+Callback, c.finishFlow)
	}
	for pattern, serve := range screens() {
		method, path, _ := strings.Cut(pattern, " ")
		mux.Handle(method+" "+Base+path, c.signedIn(serve))
	}
	mux.HandleFunc(Base+"/", func(w http.ResponseWriter, r *http.Request) {
		c.fail(w, r, nil, &refusal{http.StatusNotFound, t("error.nowhere")})
	})
	protection, err := location.Protection(o.URL)
	if err != nil {
		return nil, err
	}
	return protection.Handler(hardened(mux)), nil
}

// screens are what people see and do, by method and path below Base.
func screens() map[string]func(*visit) error {
	return map[string]func(*visit) error{
		"POST /sign-out": signOut,
		"GET /{$}":       home,
		"GET /stream":    stream,

		"GET /machines":                         listMachines,
		"POST /machines/plan":                   planAction,
		"POST /machines/apply":                  applyAction,
		"GET /machines/plan":                    afterAction,
		"GET /machines/apply":                   afterAction,
		"GET /machines/{infra_env}/{host}":      showMachine,
		"GET /infra-envs":                       listInfraEnvs,
		"GET /infra-envs/new":                   newInfraEnv,
		"POST /infra-envs":                      createInfraEnv,
		"GET /infra-envs/{id}":                  showInfraEnv,
		"POST /infra-envs/{id}/wipe":            setWipe,
		"GET /infra-envs/{id}/wipe":             afterChange,
		"GET /infra-envs/{id}/ipxe":             afterChange,
		"GET /infra-envs/{id}/rotate":           afterChange,
		"GET /infra-envs/{id}/image":            downloadImage,
		"POST /infra-envs/{id}/ipxe":            showIPXE,
		"POST /infra-envs/{id}/rotate":          rotateTokens,
		"GET /clusters":                         listClusters,
		"GET /clusters/new":                     newCluster,
		"GET /clusters/options":                 offerClusters,
		"POST /clusters":                        createCluster,
		"GET /clusters/{id}":                    showCluster,
		"POST /clusters/{id}/install":           installCluster,
		"GET /clusters/{id}/credentials/{file}": downloadCredentials,
		"GET /clusters/{id}/logs":               downloadLogs,

		"GET /addresses":                            listAddresses,
		"GET /addresses/{namespace}/{name}":         showAddresses,
		"GET /pools":                                listPools,
		"POST /pools/{namespace}/{name}/claim":      createClaim,
		"GET /claims/{namespace}/{name}":            showClaim,
		"POST /claims/{namespace}/{name}/give-back": giveBack,
		"GET /claims/{namespace}/{name}/kubeconfig": downloadKubeconfig,
	}
}

// hardened sets the headers that keep a page from running or loading what is not the console's.
func hardened(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cache-Control", "no-store")
		r.Body = http.MaxBytesReader(w, r.Body, maxForm)
		next.ServeHTTP(w, r)
	})
}

// visit is one request of a person who is signed in.
type visit struct {
	*console
	w       http.ResponseWriter
	r       *http.Request
	session session.Session
	api     client.ClientInterface
}

// signedIn serves people who are signed in, and sends the others to the page where they do that.
func (c *console) signedIn(serve func(*visit) error) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s, err := c.vault.Open(r)
		switch {
		case err == nil:
		case location.CrossSite(r): // the person may be signed in all the same
			c.follow(w, t("follow.title"), location.Local(r.URL.RequestURI()))
			return
		case c.returnForm(w, r, nil):
			return
		default:
			c.toSignIn(w, r)
			return
		}
		v := &visit{console: c, w: w, r: r, session: s}
		if v.api, err = inprocess.NewClient(c.API, s.Token, r); err == nil && r.Method != http.MethodGet && !s.Holds(r.PostFormValue(csrfField)) {
			if c.returnForm(w, r, &s) {
				return
			}
			err = &refusal{http.StatusForbidden, t("error.csrf")}
		}
		if err == nil {
			err = serve(v)
		}
		if err != nil {
			c.fail(w, r, v, err)
		}
	})
}

// toSignIn leads to the page for signing in, and from there back to the page that was asked for.
func (c *console) toSignIn(w http.ResponseWriter, r *http.Request) {
	target := signInURL
	if r.Method == http.MethodGet {
		target = location.SignInFor(location.Page(r))
	}
	switch {
	case r.Header.Get("HX-Request") != "":
		w.Header().Set("HX-Redirect", target)
		w.WriteHeader(http.StatusNoContent)
	case r.URL.Path == streamURL: // an EventSource cannot follow to a page
		eventstream.Begin(w)
		_, _ = io.WriteString(w, eventstream.Event("ended")) // a browser that is gone needs no answer
	default:
		http.Redirect(w, r, target, http.StatusSeeOther) //nolint:gosec // the page for signing in; Local judges what follows it
	}
}

// fail answers with the sentence of an error. A session whose token ended is forgotten.
func (c *console) fail(w http.ResponseWriter, r *http.Request, v *visit, err error) {
	var refused *refusal
	if !errors.As(err, &refused) {
		c.Log.Error("serving the console", zap.String("path", r.URL.Path), zap.Error(err))
		refused = &refusal{http.StatusInternalServerError, t("error.internal")}
	}
	if refused.status == http.StatusUnauthorized {
		c.vault.Forget(w, r, c.HTTPS)
		if !c.returnForm(w, r, nil) {
			c.toSignIn(w, r)
		}
		return
	}
	var by *session.Session
	if v != nil {
		by = &v.session
	}
	c.pages.render(w, refused.status, "error", frame{Title: t("error.title"), Session: by, Body: refused})
}

// show renders a page.
func (v *visit) show(name, title string, body any) error {
	may, err := v.permissions()
	if err != nil {
		return err
	}
	v.pages.render(v.w, http.StatusOK, name, frame{
		Title: title, Session: &v.session, Section: section(v.r.URL.Path), URL: v.r.URL.RequestURI(), Form: v.r.Method != http.MethodGet, May: may, Body: body,
	})
	return nil
}

// permissions asks the API what the person may do.
func (v *visit) permissions() (permissions, error) {
	by, err := v.shared.identities.Do(v.r.Context(), v.session.Token, func(ctx context.Context) (api.Identity, error) {
		return call[api.Identity](v.api.GetIdentity(ctx))
	})
	return permissions{Change: !by.ReadOnly, Cluster: v.hasCluster()}, err
}

// section is the first part of a path below Base, which names an entry of the navigation.
func section(path string) string {
	name, _, _ := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(path, Base), "/"), "/")
	return name
}

func (v *visit) redirect(path string) error {
	http.Redirect(v.w, v.r, Base+path, http.StatusSeeOther)
	return nil
}

// refusal is an answer of the API, or of the console, that says what is wrong.
type refusal struct {
	status int
	Reason string
}

// Error implements error.
func (r *refusal) Error() string { return fmt.Sprintf("%d: %s", r.status, r.Reason) }

func refused(status int, answer api.Error) *refusal {
	return &refusal{status, cmp.Or(answer.Reason, answer.Message, http.StatusText(status))}
}
