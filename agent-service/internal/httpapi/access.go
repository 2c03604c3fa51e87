// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package httpapi

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/muster-io/muster/agent-service/internal/domain"
	"github.com/muster-io/muster/agent-service/internal/token"
)

// caller is who asks: a person, or a machine by what its token opens.
type caller struct {
	person  domain.Principal
	machine *token.Scope
	// again identifies the caller once more, for answers that go on for long.
	again func() error
	// source is the address that the request came from.
	source string
}

type callerKey struct{}

func callerOf(ctx context.Context) caller {
	c, _ := ctx.Value(callerKey{}).(caller)
	return c
}

// principal is who asks the domain. A machine asks as itself: what it opens was checked here.
func principal(ctx context.Context) domain.Principal {
	c := callerOf(ctx)
	if c.machine != nil {
		return domain.Machine
	}
	return c.person
}

// authenticated lets in who may call the operation. Where a machine's token comes from does not matter: header or query, each opens the same.
func (s *server) authenticated(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, err := s.identify(r)
		if err != nil {
			s.refuse(w, r, err)
			return
		}
		if c.person.ReadOnly && !slices.Contains(reads, s.operations[r.Pattern].ID) {
			s.refuse(w, r, errReadOnly)
			return
		}
		c.source, _, _ = net.SplitHostPort(r.RemoteAddr)
		c.again = func() error {
			_, err := s.identify(r)
			return err
		}
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), callerKey{}, c)))
	})
}

func (s *server) identify(r *http.Request) (caller, error) {
	bearer := r.Header.Get("Authorization")
	if scheme, credentials, parted := strings.Cut(bearer, " "); parted && strings.EqualFold(scheme, "Bearer") {
		bearer = strings.TrimLeft(credentials, " ")
	}
	if raw := r.URL.Query().Get("api_key"); token.IsDownload(raw) {
		if !s.operations[r.Pattern].Downloads {
			return caller{}, token.ErrForeign
		}
		person, err := s.Authority.VerifyDownload(raw, downloadAddress(r))
		return caller{person: person}, err
	}
	tokens := machineTokens(r)
	if bearer != "" && s.Authority.Issued(bearer) {
		tokens = append(tokens, bearer)
	}
	if len(tokens) == 0 {
		person, err := s.People.Person(r.Context(), bearer)
		if err == nil && bearer == "" && s.crossSite(r) {
			err = errCrossSite
		}
		return caller{person: person}, err
	}
	var scope token.Scope
	for _, raw := range tokens {
		found, err := s.machine(r, raw)
		if err != nil {
			return caller{}, err
		}
		scope = found
	}
	return caller{machine: &scope}, nil
}

var errCrossSite = &refusal{http.StatusForbidden, "this request comes from a page of another site: without authentication of users, such pages change nothing; a proxy before the service has to pass the header Host on"}

// crossSite is true for a change that a page of another site asks for. Browsers send it without asking the service first where it looks like a form. Clients that are no browsers do
// not say where they come from. Ports are not compared: proxies pass on the host that a browser asked for without its port.
func (s *server) crossSite(r *http.Request) bool {
	if slices.Contains([]string{http.MethodGet, http.MethodHead, http.MethodOptions}, r.Method) {
		return false
	}
	if site := r.Header.Get("Sec-Fetch-Site"); site != "" {
		return site == "cross-site"
	}
	origin := r.Header.Get("Origin")
	if origin == "" {
		return false
	}
	own := []string{hostname("http://" + r.Host), hostname(s.BaseURL)}
	return !slices.ContainsFunc(own, func(name string) bool { return name != "" && strings.EqualFold(name, hostname(origin)) })
}

// hostname is that of a URL, empty for none.
func hostname(address string) string {
	at, err := url.Parse(address)
	if err != nil {
		return ""
	}
	return at.Hostname()
}

// machineTokens are all that a request carries: every one of them has to be good.
func machineTokens(r *http.Request) []string {
	query := r.URL.Query()
	var found []string
	for _, raw := range []string{r.Header.Get("X-Secret-Key"), r.Header.Get("Image-Token"), query.Get("api_key"), query.Get("image_token")} {
		if raw != "" {
			found = append(found, raw)
		}
	}
	return found
}

func (s *server) machine(r *http.Request, raw string) (token.Scope, error) {
	operation := s.operations[r.Pattern]
	var scope token.Scope
	var err error
	if operation.Images && !strings.Contains(raw, ".") {
		scope, err = s.Authority.VerifyShort(r.Context(), raw)
	} else {
		scope, err = s.Authority.Verify(r.Context(), raw)
	}
	if errors.Is(err, token.ErrRevoked) || errors.Is(err, token.ErrExpired) {
		err = s.outlived(r, scope, err)
	}
	if err != nil {
		return scope, err
	}
	if !operation.Machines && !operation.Images {
		return scope, &refusal{http.StatusForbidden, "user token required: the token of a machine is not accepted here"}
	}
	env, host := r.PathValue("infra_env_id"), r.PathValue("host_id")
	if env == "" {
		return scope, nil // the operation itself compares what its query or body names
	}
	if host != "" {
		key := domain.HostKey{InfraEnvID: strings.ToLower(env), HostID: strings.ToLower(host)}
		if operation.ID == "GetNextSteps" {
			if unknown, err := s.unregistered(r.Context(), caller{machine: &scope}, key); unknown || err != nil {
				return scope, err
			}
		}
		return scope, s.opens(r.Context(), scope, key)
	}
	if scope.Opens(strings.ToLower(env), scope.HostID) != nil || scope.HostID != "" && !slices.Contains(ofHosts, operation.ID) {
		return scope, errNotFound
	}
	return scope, nil
}

// ofHosts are the operations of an infra-env that a host's token opens for that host: what belongs to the infra-env itself, such as its ignition, is for its image and for people.
var ofHosts = []string{"RegisterHost", "ListHosts"}

// opens lets a machine act as a host: with the host's token, or with its image's where the agent can take no other.
func (s *server) opens(ctx context.Context, scope token.Scope, key domain.HostKey) error {
	if scope.Opens(key.InfraEnvID, key.HostID) != nil {
		return errNotFound
	}
	if scope.HostID != "" {
		return nil
	}
	admitted, err := s.Service.Admitted(ctx, key, scope.Generation)
	if err == nil && !admitted {
		err = errNotFound
	}
	return err
}

// outlived lets a running machine go on with its image's token, which has ended since: it registered with that and can take no other. Another machine
// cannot register with it, and it opens nothing but that host.
func (s *server) outlived(r *http.Request, scope token.Scope, ended error) error {
	key := domain.HostKey{InfraEnvID: strings.ToLower(r.PathValue("infra_env_id")), HostID: strings.ToLower(r.PathValue("host_id"))}
	if scope.HostID != "" || key.HostID == "" {
		return ended
	}
	err := s.opens(r.Context(), scope, key)
	if errors.Is(err, errNotFound) {
		err = ended
	}
	return err
}

// mayAct lets the host itself pass, and people who may see what it sees.
func (s *server) mayAct(ctx context.Context, key domain.HostKey) error {
	c := callerOf(ctx)
	if c.machine != nil {
		return s.opens(ctx, *c.machine, key)
	}
	return s.Service.MayActAs(ctx, c.person, key)
}

// account names the caller of a request: a person, or the host that a machine acts as.
func (c caller) account(r *http.Request) string {
	if c.machine == nil {
		return "person " + c.person.Organization + "/" + c.person.User
	}
	host := c.machine.HostID
	if host == "" {
		host = r.PathValue("host_id")
	}
	return "machine " + c.machine.InfraEnvID + "/" + host
}
