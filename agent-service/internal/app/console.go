// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"os"
	"strings"

	"go.uber.org/zap"

	"github.com/muster-io/muster/agent-service/internal/console"
	"github.com/muster-io/muster/agent-service/internal/console/oidc"
	"github.com/muster-io/muster/agent-service/internal/token"
	"github.com/muster-io/muster/apis/requestcount"
)

// ConsoleOptions say how people sign in to the console.
type ConsoleOptions struct {
	ConsoleClientID         string
	ConsoleClientSecretFile string
	ConsoleURL              string
}

func (o *ConsoleOptions) bind(flags *flag.FlagSet) {
	flags.StringVar(&o.ConsoleClientID, "console-client-id", "", "id of the console at the issuer that --oidc-issuer names by URL: people sign in there; empty where they paste tokens")
	flags.StringVar(&o.ConsoleClientSecretFile, "console-client-secret-file", "", "file with the client secret of --console-client-id; empty for a public client")
	flags.StringVar(&o.ConsoleURL, "console-url", "", "URL at which browsers reach this service, without /console and a slash at the end; empty for --base-url")
}

// validateConsole says what is wrong with how people sign in.
func (o *Options) validateConsole() (errs []error) {
	if o.ConsoleURL != "" && !isAddress(o.ConsoleURL) {
		errs = append(errs, fmt.Errorf("--console-url=%s: write http(s)://host:port without a slash at the end", o.ConsoleURL))
	}
	if o.ConsoleClientID == "" {
		if o.ConsoleClientSecretFile != "" {
			errs = append(errs, errors.New("--console-client-secret-file: give --console-client-id, too"))
		}
		return errs
	}
	if !o.Console {
		errs = append(errs, errors.New("--console-client-id: give --console, too"))
	}
	if !strings.HasPrefix(o.OIDCIssuer, "https://") && !strings.HasPrefix(o.OIDCIssuer, "http://") {
		errs = append(errs, errors.New("--console-client-id: write the URL of the issuer in --oidc-issuer"))
	}
	if o.OIDCAudience != "" && o.OIDCAudience != o.ConsoleClientID {
		errs = append(errs, fmt.Errorf("--oidc-audience=%s: tokens of the console have the audience %s: write that, or leave --oidc-audience empty", o.OIDCAudience, o.ConsoleClientID))
	}
	return errs
}

// browserURL is where browsers reach the service.
func (o *Options) browserURL() string { return cmp.Or(o.ConsoleURL, o.BaseURL) }

// mountConsole serves the screens, where that is asked for, as a client of REST.
func (o *Options) mountConsole(mux *http.ServeMux, rest http.Handler, people token.People, key []byte, requests *requestcount.Counter, log *zap.Logger) error {
	if !o.Console {
		return nil
	}
	options := console.Options{API: rest, Key: key, URL: o.browserURL(), HTTPS: strings.HasPrefix(o.browserURL(), "https://") || o.TLSCertificate != "", Log: log}
	var err error
	if o.KubeAPI || o.OIDCIssuer == "kubernetes" { // no other service sends tokens of people there
		if options.Kubernetes, err = o.kubernetes(requests); err != nil {
			return err
		}
	}
	if options.SignIn, err = o.signIn(people); err != nil {
		return err
	}
	screens, err := console.New(options)
	if err != nil {
		return fmt.Errorf("preparing the console: %w", err)
	}
	mux.Handle(console.Base+"/", screens)
	return nil
}

// signIn is the issuer where people sign in to the console; nil where they paste tokens only.
func (o *Options) signIn(people token.People) (*oidc.Client, error) {
	issuer, known := people.(*token.Issuer)
	if !known || o.ConsoleClientID == "" {
		return nil, nil
	}
	own := *issuer
	own.Audience = o.ConsoleClientID // also where the API accepts any
	s := &oidc.Client{Issuer: o.OIDCIssuer, ID: o.ConsoleClientID, Redirect: o.browserURL() + console.Callback, Verify: func(ctx context.Context, idToken string) error {
		_, err := own.Person(ctx, idToken)
		return err
	}}
	if o.ConsoleClientSecretFile != "" {
		secret, err := o.consoleClientSecret()
		if err != nil {
			return nil, err
		}
		if secret != "" { // an empty one is that of a public client
			s.Secret = o.consoleClientSecret
		}
	}
	return s, nil
}

func (o *Options) consoleClientSecret() (string, error) {
	content, err := os.ReadFile(o.ConsoleClientSecretFile)
	if err != nil {
		return "", fmt.Errorf("reading --console-client-secret-file: %w", err)
	}
	return strings.TrimSpace(string(content)), nil
}
