// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Command web answers at port 8080 with a line: the name of its pod, and the address of the client as the pod sees it.
//
//	web get URL TIMES
//
// prints what another one answers, each time by a connection of its own.
package main

import (
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"strconv"
	"time"
)

func main() {
	log.SetFlags(0)
	if len(os.Args) == 4 && os.Args[1] == "get" {
		if err := get(os.Args[2], os.Args[3]); err != nil {
			log.Fatal(err)
		}
		return
	}
	name, err := os.Hostname()
	if err != nil {
		log.Fatal(err)
	}
	log.Printf("web starts in %s", name)
	server := &http.Server{Addr: ":8080", ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		client, _, _ := net.SplitHostPort(r.RemoteAddr)
		_, _ = fmt.Fprintln(w, name, client) //nolint:gosec // plain text for the test that asks
	})}
	log.Fatal(server.ListenAndServe())
}

func get(address, times string) error {
	count, err := strconv.Atoi(times)
	if err != nil {
		return err
	}
	client := &http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	for range count {
		response, err := client.Get(address) //nolint:noctx,gosec // the client has a time-out; the address is the test's
		if err != nil {
			return err
		}
		_, err = io.Copy(os.Stdout, response.Body)
		_ = response.Body.Close()
		if err != nil {
			return err
		}
	}
	return nil
}
