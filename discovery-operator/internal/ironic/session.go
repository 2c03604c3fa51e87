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
	// versionFields knows every field that is asked for, but for those of later versions below; with ironic-inspector beside it, that is enough.
	versionFields = 61
	// versionNetwork keeps network data of ramdisks.
	versionNetwork = 66
	// versionInventory serves inventories.
	versionInventory = 81
	// versionChildren hides nodes with a parent from lists unless they are asked for.
	versionChildren = 83
	// versionKeepOn can be told never to switch a machine off.
	versionKeepOn = 95
	// versionMax is the newest that this package was written for.
	versionMax = 96
)

// newestVersion is the header in which each answer of Ironic names the newest version that it speaks.
const newestVersion = "X-OpenStack-Ironic-API-Maximum-Version"

// upgraded is how many answers in a row have to name a later version than the one that is spoken before that is spoken: during an upgrade, former and new
// replicas of Ironic answer in turn.
const upgraded = 20

// session is the way into one Ironic: it authenticates, agrees on a version, sends requests and explains what fails. It is safe for concurrent use.
type session struct {
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
	// later is how many answers in a row named a later version; the lock of the session guards it.
	later int
}

// Endpoint names the service, without credentials.
func (s *session) Endpoint() string { return s.config.Endpoint }

// Version returns the version of the API that is spoken, asking for it if it is not known yet.
func (s *session) Version(ctx context.Context) (string, error) {
	agreed, err := s.connect(ctx)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("1.%d", agreed.version), nil
}

// Failing reports whether the last request failed in a way that other credentials or another authority may cure.
func (s *session) Failing() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.failing
}

// connect authenticates and agrees on a version, once until forget is called. Callers that come meanwhile wait for the same answer, each no longer
// than its own context.
func (s *session) connect(ctx context.Context) (*services, error) {
	s.mu.Lock()
	agreed := s.services
	s.mu.Unlock()
	if agreed != nil {
		return agreed, nil
	}
	connecting := s.connecting.DoChan("", func() (any, error) { return s.agree(context.WithoutCancel(ctx)) })
	select {
	case <-ctx.Done():
		return nil, s.explain("connecting to "+s.config.Endpoint, ctx.Err())
	case r := <-connecting:
		if r.Err != nil {
			return nil, r.Err
		}
		agreed, _ = r.Val.(*services)
		return agreed, nil
	}
}

// agree authenticates, asks for the versions of the API, and keeps what came of it.
func (s *session) agree(ctx context.Context) (*services, error) {
	agreed, err := s.negotiate(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failing = curable(err)
	if err != nil {
		return nil, err
	}
	s.services = agreed
	return agreed, nil
}

func (s *session) negotiate(ctx context.Context) (*services, error) {
	agreed, err := s.authenticate(ctx)
	if err != nil {
		return nil, err
	}
	var root json.RawMessage
	header, err := s.send(ctx, agreed.ironic, "version", http.MethodGet, "", nil, &root)
	if err != nil {
		return nil, err
	}
	highest := minor(header.Get(newestVersion))
	if highest < 0 {
		return nil, inventory.Failf(inventory.ProblemInvalid, "%s does not say which versions of Ironic's API it speaks", s.config.Endpoint)
	}
	needed := versionInventory
	if agreed.inspector != nil {
		needed = versionFields
	}
	agreed.version = min(highest, versionMax)
	if agreed.version < needed {
		return nil, inventory.Failf(inventory.ProblemTooOld, "%s speaks version 1.%d of Ironic's API, needed is 1.%d", s.config.Endpoint, highest, needed)
	}
	agreed.ironic.Microversion = "1." + strconv.Itoa(agreed.version)
	return agreed, nil
}

func (s *session) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.services = nil
}

// follow has the version agreed anew when Ironic was upgraded and no request has failed meanwhile.
func (s *session) follow(agreed *services, answer http.Header) {
	newest := minor(answer.Get(newestVersion))
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case newest < 0:
	case min(newest, versionMax) <= agreed.version:
		agreed.later = 0
	case agreed.later+1 < upgraded:
		agreed.later++
	case s.services == agreed:
		s.services = nil
	}
}

func minor(version string) int {
	_, after, ok := strings.Cut(version, "1.")
	n, err := strconv.Atoi(after)
	if !ok || err != nil {
		return -1
	}
	return n
}

func (s *session) authenticate(ctx context.Context) (*services, error) {
	if s.config.Auth == AuthKeystone {
		return s.keystone(ctx)
	}
	agreed := &services{}
	var err error
	if agreed.ironic, err = s.plain(s.config.Endpoint); err == nil && s.config.InspectorEndpoint != "" {
		agreed.inspector, err = s.plain(s.config.InspectorEndpoint)
	}
	if err != nil {
		return nil, inventory.Failf(inventory.ProblemNoEndpoint, "preparing to talk to %s: %v", s.config.Endpoint, err)
	}
	return agreed, nil
}

// plain is an entrance without tokens.
func (s *session) plain(endpoint string) (*gophercloud.ServiceClient, error) {
	var sc *gophercloud.ServiceClient
	var err error
	if s.config.Auth == AuthHTTPBasic {
		sc, err = httpbasic.NewBareMetalHTTPBasic(httpbasic.EndpointOpts{
			IronicEndpoint: endpoint, IronicUser: s.config.Username, IronicUserPassword: s.config.Password,
		})
	} else {
		sc, err = noauth.NewBareMetalNoAuth(noauth.EndpointOpts{IronicEndpoint: endpoint})
	}
	if err != nil {
		return nil, fmt.Errorf("preparing the client: %w", err)
	}
	sc.HTTPClient = *s.http
	return sc, nil
}

func (s *session) keystone(ctx context.Context) (*services, error) {
	k := s.config.Keystone
	provider, err := openstack.NewClient(k.AuthURL)
	if err != nil {
		return nil, inventory.Failf(inventory.ProblemNoEndpoint, "the address of Keystone is not a URL")
	}
	provider.HTTPClient = *s.http
	err = openstack.Authenticate(ctx, provider, gophercloud.AuthOptions{
		IdentityEndpoint: k.AuthURL, Username: s.config.Username, Password: s.config.Password, DomainName: k.UserDomain,
		AllowReauth: true,
		Scope:       &gophercloud.AuthScope{ProjectName: k.Project, DomainName: k.ProjectDomain},
	})
	if err != nil {
		return nil, s.explain("authenticating at Keystone "+Redact(k.AuthURL), err)
	}
	sc := &gophercloud.ServiceClient{ProviderClient: provider, Endpoint: s.config.Endpoint, Type: "baremetal"}
	agreed := &services{ironic: sc}
	if s.config.InspectorEndpoint != "" {
		agreed.inspector = &gophercloud.ServiceClient{ProviderClient: provider, Endpoint: s.config.InspectorEndpoint, Type: "baremetal-introspection"}
	}
	return agreed, nil
}

// send makes one request and decodes the reply into out, if out is not nil. The path is relative to the endpoint.
func (s *session) send(ctx context.Context, sc *gophercloud.ServiceClient, operation, method, path string, body, out any) (http.Header, error) {
	ctx = context.WithValue(ctx, operationKey{}, operation)
	opts := &gophercloud.RequestOpts{JSONBody: body, OkCodes: []int{200, 201, 202, 204}, KeepResponseBody: true}
	resp, err := sc.Request(ctx, method, sc.Endpoint+path, opts)
	if err != nil {
		return nil, s.explain(operation+" at "+sc.Endpoint+cutQuery(path), err)
	}
	defer func() { _ = resp.Body.Close() }()
	if out != nil {
		if err := json.NewDecoder(resp.Body).Decode(out); err != nil {
			return nil, s.explain(operation+" at "+sc.Endpoint+cutQuery(path), &badReply{err})
		}
	}
	return resp.Header, nil
}

// call is send to Ironic on the agreed version. After a refusal of the version or the credentials both are agreed anew next time, and so they are where Ironic speaks a later version by now.
func (s *session) call(ctx context.Context, operation, method, path string, body, out any) error {
	agreed, err := s.connect(ctx)
	if err != nil {
		return err
	}
	answer, err := s.send(ctx, agreed.ironic, operation, method, path, body, out)
	s.note(err)
	if err == nil {
		s.follow(agreed, answer)
	}
	if e := (*inventory.EndpointError)(nil); errors.As(err, &e) {
		switch e.Problem { //nolint:exhaustive // the others say nothing about version or credentials
		case inventory.ProblemCredentials, inventory.ProblemUnreachable:
			s.forget()
		case inventory.ProblemTooOld:
			s.forget()
			if _, why := s.connect(ctx); why != nil { // it names the versions
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

func (s *session) note(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failing = curable(err)
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
func (s *session) explain(attempt string, err error) error {
	if e := (*gophercloud.ErrUnexpectedResponseCode)(nil); asPointerOrValue(err, &e) {
		fault, problem := faultOf(e.Body), problemOf(e.Actual)
		if e.Actual == http.StatusInternalServerError && strings.Contains(string(e.Body), "Node is locked") { // ironic-inspector's, passed on
			problem = inventory.ProblemBusy
		}
		if e.Actual == http.StatusServiceUnavailable && full(fault) {
			problem = inventory.ProblemFull
		}
		if e.Actual == http.StatusForbidden && strings.Contains(fault, "is protected") { // that node, whatever the credentials
			problem = inventory.ProblemRefused
		}
		if problem == inventory.ProblemNotFound && strings.HasPrefix(fault, "No valid host was found") { // it is a conductor that is missing, not the node
			problem = inventory.ProblemRefused
		}
		if problem == inventory.ProblemNotFound && !explained(e.Body) { // a proxy that has no route to Ironic, which says nothing about a node
			return inventory.Failf(inventory.ProblemInvalid, "%s: HTTP %d, and the answer is not Ironic's", attempt, e.Actual)
		}
		return inventory.Failf(problem, "%s: HTTP %d: %s", attempt, e.Actual, s.hide(fault))
	}
	if unable, ok := errors.AsType[*gophercloud.ErrUnableToReauthenticate](err); ok {
		return s.explain(attempt+": renewing the token at Keystone "+Redact(s.config.Keystone.AuthURL), unable.ErrReauth)
	}
	var bad *badReply
	var netErr net.Error
	switch {
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &netErr) && netErr.Timeout():
		return inventory.Failf(inventory.ProblemTimedOut, "%s: no answer in time", attempt)
	case errors.As(err, &bad), errors.Is(err, errTooLong):
		return inventory.Failf(inventory.ProblemInvalid, "%s: the answer is not Ironic's: %s", attempt, s.hide(bounded256(err.Error())))
	case errors.Is(err, context.Canceled):
		return fmt.Errorf("%s: %w", attempt, context.Canceled)
	}
	if urlErr, ok := errors.AsType[*url.Error](err); ok { // its own text repeats the URL
		err = urlErr.Err
	}
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Addr != nil { // its own text has the port of this side, which differs each time
		err = fmt.Errorf("%s %s: %w", op.Op, op.Addr, op.Err)
	}
	return inventory.Failf(inventory.ProblemUnreachable, "%s: %s", attempt, s.hide(bounded256(err.Error())))
}

// full reports whether Ironic says that it does as much at once as it may: it has a limit for machines that are deployed, one for those that are cleaned, and a number of threads.
func full(fault string) bool {
	return strings.Contains(fault, "concurrent action limit") || strings.Contains(fault, "free conductor workers")
}

func asPointerOrValue(err error, target **gophercloud.ErrUnexpectedResponseCode) bool {
	if v, ok := errors.AsType[gophercloud.ErrUnexpectedResponseCode](err); ok {
		*target = &v
		return true
	}
	return errors.As(err, target)
}

// hide removes the password from a text that came from elsewhere.
func (s *session) hide(text string) string {
	if s.config.Password != "" {
		text = strings.ReplaceAll(text, s.config.Password, "******")
		text = strings.ReplaceAll(text, url.QueryEscape(s.config.Password), "******")
	}
	return text
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

// explained reports whether an error has one of the forms of faultOf. Ironic and ironic-inspector write one into each of their errors.
func explained(body []byte) bool {
	var reply struct {
		ErrorMessage json.RawMessage `json:"error_message"`
		Error        json.RawMessage `json:"error"`
	}
	return json.Unmarshal(body, &reply) == nil && (reply.ErrorMessage != nil || reply.Error != nil)
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
