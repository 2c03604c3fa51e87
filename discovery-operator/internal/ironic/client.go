// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package ironic

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"

	"github.com/gophercloud/gophercloud/v2"
	"github.com/gophercloud/gophercloud/v2/openstack"
	"github.com/gophercloud/gophercloud/v2/openstack/baremetal/httpbasic"
	"github.com/gophercloud/gophercloud/v2/openstack/baremetal/noauth"
	"golang.org/x/sync/singleflight"

	"github.com/muster-io/muster/discovery-operator/internal/inventory"
)

// Minor versions of the API, 1.<minor>.
const (
	// versionFields knows every field that is asked for; with ironic-inspector beside it, that is enough.
	versionFields = 61
	// versionInventory serves inventories.
	versionInventory = 81
	// versionChildren hides nodes with a parent from lists unless they are asked for.
	versionChildren = 83
	// versionMax is the newest that this package was written for.
	versionMax = 96
)

// Client is one Ironic, with the ironic-inspector beside it if there is one. It is safe for concurrent use.
type Client struct {
	config Config
	http   *http.Client
	// connecting authenticates once for all who need it. No lock is held meanwhile.
	connecting singleflight.Group

	mu       sync.Mutex
	services *services
	failing  bool
}

// services are the authenticated entrances, made when first needed and again after a refusal.
type services struct {
	ironic, inspector *gophercloud.ServiceClient
	version           int
}

// New returns a client. It sends no request yet. The observer may be nil.
func New(c Config, observe Observer) (*Client, error) {
	c, err := c.normal()
	if err != nil {
		return nil, err
	}
	h, err := c.httpClient(observe)
	if err != nil {
		return nil, err
	}
	return &Client{config: c, http: h}, nil
}

// Endpoint names the service, without credentials.
func (c *Client) Endpoint() string { return c.config.Endpoint }

// Version returns the version of the API that is spoken, asking for it if it is not known yet.
func (c *Client) Version(ctx context.Context) (string, error) {
	s, err := c.connect(ctx)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("1.%d", s.version), nil
}

// Failing reports whether the last request failed in a way that other credentials or another authority may cure.
func (c *Client) Failing() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.failing
}

// connect authenticates and agrees on a version, once until forget is called. Callers that come meanwhile wait for the same answer, each no longer
// than its own context.
func (c *Client) connect(ctx context.Context) (*services, error) {
	c.mu.Lock()
	s := c.services
	c.mu.Unlock()
	if s != nil {
		return s, nil
	}
	connecting := c.connecting.DoChan("", func() (any, error) { return c.agree(context.WithoutCancel(ctx)) })
	select {
	case <-ctx.Done():
		return nil, c.explain("connecting to "+c.config.Endpoint, ctx.Err())
	case r := <-connecting:
		if r.Err != nil {
			return nil, r.Err
		}
		s, _ = r.Val.(*services)
		return s, nil
	}
}

// agree authenticates, asks for the versions of the API, and keeps what came of it.
func (c *Client) agree(ctx context.Context) (*services, error) {
	s, err := c.negotiate(ctx)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.failing = curable(err)
	if err != nil {
		return nil, err
	}
	c.services = s
	return s, nil
}

func (c *Client) negotiate(ctx context.Context) (*services, error) {
	s, err := c.authenticate(ctx)
	if err != nil {
		return nil, err
	}
	var root json.RawMessage
	header, err := c.send(ctx, s.ironic, "version", http.MethodGet, "", nil, &root)
	if err != nil {
		return nil, err
	}
	highest := minor(header.Get("X-OpenStack-Ironic-API-Maximum-Version"))
	if highest < 0 {
		return nil, inventory.Failf(inventory.ProblemInvalid, "%s does not say which versions of Ironic's API it speaks", c.config.Endpoint)
	}
	needed := versionInventory
	if s.inspector != nil {
		needed = versionFields
	}
	s.version = min(highest, versionMax)
	if s.version < needed {
		return nil, inventory.Failf(inventory.ProblemTooOld, "%s speaks version 1.%d of Ironic's API, needed is 1.%d", c.config.Endpoint, highest, needed)
	}
	s.ironic.Microversion = "1." + strconv.Itoa(s.version)
	return s, nil
}

func (c *Client) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.services = nil
}

func minor(version string) int {
	_, after, ok := strings.Cut(version, "1.")
	n, err := strconv.Atoi(after)
	if !ok || err != nil {
		return -1
	}
	return n
}

func (c *Client) authenticate(ctx context.Context) (*services, error) {
	if c.config.Auth == AuthKeystone {
		return c.keystone(ctx)
	}
	s := &services{}
	var err error
	if s.ironic, err = c.plain(c.config.Endpoint); err == nil && c.config.InspectorEndpoint != "" {
		s.inspector, err = c.plain(c.config.InspectorEndpoint)
	}
	if err != nil {
		return nil, inventory.Failf(inventory.ProblemNoEndpoint, "preparing to talk to %s: %v", c.config.Endpoint, err)
	}
	return s, nil
}

// plain is an entrance without tokens.
func (c *Client) plain(endpoint string) (*gophercloud.ServiceClient, error) {
	var sc *gophercloud.ServiceClient
	var err error
	if c.config.Auth == AuthHTTPBasic {
		sc, err = httpbasic.NewBareMetalHTTPBasic(httpbasic.EndpointOpts{
			IronicEndpoint: endpoint, IronicUser: c.config.Username, IronicUserPassword: c.config.Password,
		})
	} else {
		sc, err = noauth.NewBareMetalNoAuth(noauth.EndpointOpts{IronicEndpoint: endpoint})
	}
	if err != nil {
		return nil, fmt.Errorf("preparing the client: %w", err)
	}
	sc.HTTPClient = *c.http
	return sc, nil
}

func (c *Client) keystone(ctx context.Context) (*services, error) {
	k := c.config.Keystone
	provider, err := openstack.NewClient(k.AuthURL)
	if err != nil {
		return nil, inventory.Failf(inventory.ProblemNoEndpoint, "the address of Keystone is not a URL")
	}
	provider.HTTPClient = *c.http
	err = openstack.Authenticate(ctx, provider, gophercloud.AuthOptions{
		IdentityEndpoint: k.AuthURL, Username: c.config.Username, Password: c.config.Password, DomainName: k.UserDomain,
		AllowReauth: true,
		Scope:       &gophercloud.AuthScope{ProjectName: k.Project, DomainName: k.ProjectDomain},
	})
	if err != nil {
		return nil, c.explain("authenticating at Keystone "+Redact(k.AuthURL), err)
	}
	sc := &gophercloud.ServiceClient{ProviderClient: provider, Endpoint: c.config.Endpoint, Type: "baremetal"}
	s := &services{ironic: sc}
	if c.config.InspectorEndpoint != "" {
		s.inspector = &gophercloud.ServiceClient{ProviderClient: provider, Endpoint: c.config.InspectorEndpoint, Type: "baremetal-introspection"}
	}
	return s, nil
}

// send makes one request and decodes the reply into out, if out is not nil. The path is relative to the endpoint.
func (c *Client) send(ctx context.Context, sc *gophercloud.ServiceClient, operation, method, path string, body, out any) (http.Header, error) {
	ctx = context.WithValue(ctx, operationKey{}, operation)
	opts := &gophercloud.RequestOpts{JSONBody: body, OkCodes: []int{200, 201, 202, 204}, KeepResponseBody: true}
	resp, err := sc.Request(ctx, method, sc.Endpoint+path, opts)
	if err != nil {
		return nil, c.explain(operation+" at "+sc.Endpoint+cutQuery(path), err)
	}
	defer func() { _ = resp.Body.Close() }()
	if out != nil {
		if err := json.NewDecoder(resp.Body).Decode(out); err != nil {
			return nil, c.explain(operation+" at "+sc.Endpoint+cutQuery(path), &badReply{err})
		}
	}
	return resp.Header, nil
}

// call is send to Ironic on the agreed version. After a refusal of the version or the credentials both are agreed anew next time.
func (c *Client) call(ctx context.Context, operation, method, path string, body, out any) error {
	s, err := c.connect(ctx)
	if err != nil {
		return err
	}
	_, err = c.send(ctx, s.ironic, operation, method, path, body, out)
	c.note(err)
	if e := (*inventory.EndpointError)(nil); errors.As(err, &e) {
		switch e.Problem { //nolint:exhaustive // the others say nothing about version or credentials
		case inventory.ProblemCredentials, inventory.ProblemUnreachable:
			c.forget()
		case inventory.ProblemTooOld:
			c.forget()
			if _, why := c.connect(ctx); why != nil { // it names the versions
				return why
			}
		}
	}
	return err
}

var (
	errCredentials = &inventory.EndpointError{Problem: inventory.ProblemCredentials}
	errUnreachable = &inventory.EndpointError{Problem: inventory.ProblemUnreachable}
)

func curable(err error) bool { return errors.Is(err, errCredentials) || errors.Is(err, errUnreachable) }

func (c *Client) note(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.failing = curable(err)
}

func cutQuery(path string) string {
	path, _, _ = strings.Cut(path, "?")
	return path
}

// badReply is a reply that is not what was asked for.
type badReply struct{ error }

// Unwrap returns what is wrong with the reply.
func (b *badReply) Unwrap() error { return b.error }

// explain turns an error into one that a user understands and that carries no credential: the text of the transport and the
// faults that the service names, never the request.
func (c *Client) explain(attempt string, err error) error {
	if e := (*gophercloud.ErrUnexpectedResponseCode)(nil); asPointerOrValue(err, &e) {
		fault, problem := faultOf(e.Body), problemOf(e.Actual)
		if e.Actual == http.StatusInternalServerError && strings.Contains(string(e.Body), "Node is locked") { // ironic-inspector's, passed on
			problem = inventory.ProblemBusy
		}
		return inventory.Failf(problem, "%s: HTTP %d: %s", attempt, e.Actual, c.hide(fault))
	}
	var bad *badReply
	var netErr net.Error
	var unable *gophercloud.ErrUnableToReauthenticate
	switch {
	case errors.As(err, &unable):
		return inventory.Failf(inventory.ProblemCredentials, "%s: the credentials are refused", attempt)
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &netErr) && netErr.Timeout():
		return inventory.Failf(inventory.ProblemTimedOut, "%s: no answer in time", attempt)
	case errors.As(err, &bad), errors.Is(err, errTooLong):
		return inventory.Failf(inventory.ProblemInvalid, "%s: the answer is not Ironic's: %s", attempt, c.hide(bounded256(err.Error())))
	case errors.Is(err, context.Canceled):
		return fmt.Errorf("%s: %w", attempt, context.Canceled)
	}
	if urlErr, ok := errors.AsType[*url.Error](err); ok { // its own text repeats the URL
		err = urlErr.Err
	}
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Addr != nil { // its own text has the port of this side, which differs each time
		err = fmt.Errorf("%s %s: %w", op.Op, op.Addr, op.Err)
	}
	return inventory.Failf(inventory.ProblemUnreachable, "%s: %s", attempt, c.hide(bounded256(err.Error())))
}

func asPointerOrValue(err error, target **gophercloud.ErrUnexpectedResponseCode) bool {
	if v, ok := errors.AsType[gophercloud.ErrUnexpectedResponseCode](err); ok {
		*target = &v
		return true
	}
	return errors.As(err, target)
}

// hide removes the password from a text that came from elsewhere.
func (c *Client) hide(s string) string {
	if c.config.Password != "" {
		s = strings.ReplaceAll(s, c.config.Password, "******")
		s = strings.ReplaceAll(s, url.QueryEscape(c.config.Password), "******")
	}
	return s
}

func bounded256(s string) string {
	if len(s) > 256 {
		return strings.ToValidUTF8(s[:256], "") + "…"
	}
	return s
}

func problemOf(status int) inventory.Problem {
	switch {
	case status == http.StatusUnauthorized, status == http.StatusForbidden:
		return inventory.ProblemCredentials
	case status == http.StatusNotFound:
		return inventory.ProblemNotFound
	case status == http.StatusConflict:
		return inventory.ProblemBusy
	case status == http.StatusNotAcceptable:
		return inventory.ProblemTooOld
	case status == http.StatusServiceUnavailable, status == http.StatusTooManyRequests, status == http.StatusBadGateway,
		status == http.StatusGatewayTimeout:
		return inventory.ProblemUnreachable
	case status >= 500, status >= 300 && status < 400:
		return inventory.ProblemInvalid
	default:
		return inventory.ProblemRefused
	}
}

// faultOf reads the two forms of errors: {"error_message": "{\"faultstring\": …}"} or {"error_message": {"faultstring": …}}
// of Ironic, and {"error": {"message": …}} of ironic-inspector and of HTTP basic authentication.
func faultOf(body []byte) string {
	var reply struct {
		ErrorMessage json.RawMessage `json:"error_message"`
		Error        struct {
			Message string `json:"message"`
		} `json:"error"`
	}
	if json.Unmarshal(body, &reply) != nil {
		return "(no explanation)"
	}
	var inner string
	if json.Unmarshal(reply.ErrorMessage, &inner) == nil {
		reply.ErrorMessage = json.RawMessage(inner)
	}
	var fault struct {
		String string `json:"faultstring"`
	}
	if json.Unmarshal(reply.ErrorMessage, &fault) == nil && fault.String != "" {
		return bounded256(fault.String)
	}
	if reply.Error.Message != "" {
		return bounded256(reply.Error.Message)
	}
	return "(no explanation)"
}
