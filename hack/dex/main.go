// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Command dex is dex, an issuer of OpenID Connect, with one client and one user, in memory. Tests sign in with it.
//
//	dex -issuer=http://127.0.0.1:PORT -client=ID -redirect=URL[,URL...] -email=USER -password=PASSWORD
//
// It serves until it is interrupted. Tokens of its user are also issued for the password grant.
package main

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"strings"
	"time"

	"github.com/dexidp/dex/server"
	"github.com/dexidp/dex/storage"
	"github.com/dexidp/dex/storage/memory"
	"github.com/dexidp/dex/web"
	"golang.org/x/crypto/bcrypt"
)

type options struct{ issuer, client, secret, redirects, email, password string }

func main() {
	var o options
	flag.StringVar(&o.issuer, "issuer", "", "URL of the issuer; its host and port are listened on")
	flag.StringVar(&o.client, "client", "", "id of the client")
	flag.StringVar(&o.secret, "secret", "", "secret of the client; empty for a public client")
	flag.StringVar(&o.redirects, "redirect", "", "URLs that the client may be redirected to, comma separated")
	flag.StringVar(&o.email, "email", "", "email address of the user, which is also the name")
	flag.StringVar(&o.password, "password", "", "password of the user")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, o)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "dex:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, o options) error {
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	at, err := url.Parse(o.issuer)
	if err != nil {
		return fmt.Errorf("reading -issuer: %w", err)
	}
	hash, err := bcrypt.GenerateFromPassword([]byte(o.password), bcrypt.DefaultCost)
	if err != nil {
		return fmt.Errorf("hashing the password: %w", err)
	}
	kept := storage.WithStaticClients(memory.New(log), []storage.Client{{
		ID: o.client, Secret: o.secret, Public: o.secret == "", Name: "Muster", RedirectURIs: strings.Split(o.redirects, ","),
	}})
	kept = storage.WithStaticPasswords(kept, []storage.Password{{Email: o.email, Username: o.email, UserID: "1", Hash: hash}}, log)
	kept = storage.WithStaticConnectors(kept, []storage.Connector{{ID: server.LocalConnector, Type: server.LocalConnector, Name: "Password"}})
	handler, err := server.NewServer(ctx, server.Config{
		Issuer: o.issuer, Storage: kept, SkipApprovalScreen: true, PasswordConnector: server.LocalConnector, Web: server.WebConfig{WebFS: web.FS()}, Logger: log,
		AllowedGrantTypes: []string{"authorization_code", "password"},
	})
	if err != nil {
		return fmt.Errorf("preparing dex: %w", err)
	}
	served := &http.Server{Addr: at.Host, Handler: handler, ReadHeaderTimeout: 10 * time.Second}
	context.AfterFunc(ctx, func() { _ = served.Close() })
	if err := served.ListenAndServe(); ctx.Err() == nil {
		return fmt.Errorf("serving: %w", err)
	}
	return nil
}
