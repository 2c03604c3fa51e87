// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package externalipam speaks with an inventory of addresses outside of the cluster over HTTP: it learns which addresses of pools others have taken, and tells what was
// given. docs/inventory.md is the contract.
package externalipam

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	ipamv1 "github.com/muster-io/muster/apis/ipam/v1alpha1"
	"github.com/muster-io/muster/ipam-operator/internal/allocate"
)

const (
	// timeout ends a request that gets no answer.
	timeout = 5 * time.Second
	// maxAnswer is how long an answer may be, in bytes.
	maxAnswer = 16 << 20
)

// errStatus says that the inventory answered otherwise than the contract says.
var errStatus = errors.New("unexpected status")

// errNoAddresses says that an answer has no list of addresses: it does not say that none is taken.
var errNoAddresses = errors.New("reading the answer of the inventory: the field addresses is missing: write an empty list where nothing is taken")

// Client asks an inventory. Its errors hold no address and no credentials of it.
type Client struct {
	base  string
	token string // path of the file
	http  *http.Client
	asked func(operation string, err error)
}

// Operations, as metrics name them.
const (
	operationTaken = "taken"
	operationGive  = "give"
	operationFree  = "free"
)

// NewClient returns a Client of the inventory at a URL. The file holds a bearer token; an empty path means none.
// After each request, asked is called with its operation and its error.
func NewClient(base, tokenFile string, asked func(operation string, err error)) *Client {
	return &Client{base: strings.TrimSuffix(base, "/"), token: tokenFile, http: &http.Client{Timeout: timeout, CheckRedirect: keepMethod}, asked: asked}
}

// maxRedirects is how many redirects a request follows.
const maxRedirects = 10

// keepMethod refuses a redirect after which the notification of an address would arrive as a question, which an inventory may answer with success.
func keepMethod(next *http.Request, via []*http.Request) error {
	switch {
	case next.Method != via[0].Method:
		return fmt.Errorf("the inventory redirects %s with status %d: write the address that it redirects to into --inventory-url", via[0].Method, next.Response.StatusCode)
	case len(via) >= maxRedirects:
		return fmt.Errorf("the inventory redirects more than %d times", maxRedirects)
	}
	return nil
}

// Taken are the addresses and prefixes of a pool that others have taken.
func (c *Client) Taken(ctx context.Context, pool types.NamespacedName) (taken []netip.Prefix, err error) {
	defer func() { c.asked(operationTaken, err) }()
	query := url.Values{"namespace": {pool.Namespace}, "pool": {pool.Name}}
	content, err := c.do(ctx, http.MethodGet, "/v1/taken?"+query.Encode(), nil)
	if err != nil {
		return nil, err
	}
	var answer struct {
		Addresses []string `json:"addresses"`
	}
	if err := json.Unmarshal(content, &answer); err != nil {
		return nil, fmt.Errorf("reading the answer of the inventory: %w", err)
	}
	if answer.Addresses == nil {
		return nil, errNoAddresses
	}
	out := make([]netip.Prefix, 0, len(answer.Addresses))
	for _, text := range answer.Addresses {
		prefix, err := parse(text)
		if err != nil {
			return nil, fmt.Errorf("reading the answer of the inventory: %w", err)
		}
		out = append(out, prefix)
	}
	return out, nil
}

func parse(text string) (netip.Prefix, error) {
	if strings.Contains(text, "/") {
		prefix, err := netip.ParsePrefix(text)
		if err != nil || prefix.Bits() == 0 {
			return prefix, fmt.Errorf("%q is neither an address nor a network that could be taken", text)
		}
		return prefix.Masked(), nil
	}
	addr, err := allocate.ParseAddr(text)
	if err != nil {
		return netip.Prefix{}, err
	}
	return netip.PrefixFrom(addr, addr.BitLen()), nil
}

// given is what the inventory hears of an address that was given.
type given struct {
	Address      string `json:"address"`
	PrefixLength int    `json:"prefixLength,omitempty"`
	Pool         string `json:"pool"`
	Claim        claim  `json:"claim"`
}

type claim struct {
	Kind      string `json:"kind"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
}

// Give reports an address that was given to the inventory. It may be called again.
func (c *Client) Give(ctx context.Context, address *ipamv1.IPAddress) error {
	kind := address.Spec.Claim.Kind
	if kind == "" {
		kind = ipamv1.IPClaimKind
	}
	body, err := json.Marshal(given{
		Address: string(address.Spec.Address), PrefixLength: address.Spec.PrefixLength, Pool: address.Spec.Pool.Name,
		Claim: claim{Kind: kind, Namespace: address.ClaimKey().Namespace, Name: address.Spec.Claim.Name},
	})
	if err != nil {
		return fmt.Errorf("writing to the inventory: %w", err)
	}
	_, err = c.do(ctx, http.MethodPut, pathOf(types.NamespacedName{Namespace: address.Namespace, Name: address.Name}), body)
	c.asked(operationGive, err)
	return err
}

// Return reports to the inventory that an address is free again. One that it does not know is no error.
func (c *Client) Return(ctx context.Context, address types.NamespacedName) error {
	_, err := c.do(ctx, http.MethodDelete, pathOf(address), nil)
	c.asked(operationFree, err)
	return err
}

func pathOf(address types.NamespacedName) string {
	return "/v1/given/" + url.PathEscape(address.Namespace) + "/" + url.PathEscape(address.Name)
}

func (c *Client) do(ctx context.Context, method, path string, body []byte) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, method, c.base+path, bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("asking the inventory: %w", withoutURL(err))
	}
	if body != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	if c.token != "" {
		token, err := os.ReadFile(c.token)
		if err != nil {
			return nil, errors.New("the token of the inventory cannot be read: see --inventory-token-file")
		}
		request.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	}
	answer, err := c.http.Do(request)
	if err != nil {
		return nil, fmt.Errorf("asking the inventory: %w", withoutURL(err))
	}
	defer func() { _ = answer.Body.Close() }()
	content, err := io.ReadAll(io.LimitReader(answer.Body, maxAnswer))
	switch {
	case err != nil:
		return nil, fmt.Errorf("reading the answer of the inventory: %w", withoutURL(err))
	case answer.StatusCode == http.StatusNotFound && method == http.MethodDelete:
		return nil, nil
	case answer.StatusCode/100 != 2:
		return nil, fmt.Errorf("asking the inventory: %w %d", errStatus, answer.StatusCode)
	}
	return content, nil
}

// withoutURL is an error without the URL, which may have credentials.
func withoutURL(err error) error {
	if full := (*url.Error)(nil); errors.As(err, &full) {
		return full.Err
	}
	return err
}
