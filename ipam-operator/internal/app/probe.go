// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"crypto/tls"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/muster-io/muster/apis/certfile"
	"github.com/muster-io/muster/apis/logging"
	"github.com/muster-io/muster/ipam-operator/internal/networkprobe"
)

// probeOptions are the settings of the command "ipam-operator probe".
type probeOptions struct {
	listen, tokenFile, certFile, keyFile string
	subnets                              networkprobe.Subnets
	ports                                string
	countRefused, echo                   bool
	rate, parallel                       int
	timeout, interval, keep              time.Duration
}

// Probe is the command "ipam-operator probe": an inventory of the addresses that answer on the network. It returns the exit code: 0 when it was stopped, 1 for an error,
// 2 for arguments that cannot be used.
func Probe(ctx context.Context, arguments []string, _, problems io.Writer) int {
	o, ports, err := parseProbe(arguments, problems)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		_, _ = fmt.Fprintln(problems, err)
		return 2
	}
	if _, err := logging.New("info"); err != nil {
		_, _ = fmt.Fprintln(problems, err)
		return 1
	}
	var listen net.ListenConfig
	listener, err := listen.Listen(ctx, "tcp", o.listen)
	if err == nil {
		err = o.run(ctx, listener, ports, ctrl.Log)
	}
	if err != nil {
		_, _ = fmt.Fprintln(problems, err)
		return 1
	}
	return 0
}

func parseProbe(arguments []string, problems io.Writer) (o probeOptions, ports []int, err error) {
	flags := flag.NewFlagSet("ipam-operator probe", flag.ContinueOnError)
	flags.SetOutput(problems)
	flags.StringVar(&o.listen, "listen", ":8000", "address of the inventory")
	flags.StringVar(&o.tokenFile, "token-file", "", "file with the bearer token that requests must have; empty for none")
	flags.StringVar(&o.certFile, "tls-cert-file", "", "certificate of the inventory; empty for HTTP without TLS")
	flags.StringVar(&o.keyFile, "tls-key-file", "", "key of the certificate")
	flags.Var(&o.subnets, "subnet", "subnet to probe, as 10.0.0.0/24 for all pools or namespace/pool=10.0.0.0/24 for one; of /20 or longer, IPv6 of /116 or longer; can be repeated")
	flags.StringVar(&o.ports, "ports", "22,80,443", "TCP ports to connect to, separated by commas; empty for none")
	flags.BoolVar(&o.countRefused, "count-refused", true, "count a refused connection as an answer; disable behind a firewall that refuses in place of machines")
	flags.BoolVar(&o.echo, "echo", true, "send ICMP echo requests where the system permits them without privileges")
	flags.IntVar(&o.rate, "rate", 50, "number of addresses probed per second")
	flags.IntVar(&o.parallel, "parallel", 64, "number of addresses probed in parallel")
	flags.DurationVar(&o.timeout, "timeout", time.Second, "how long an address may take to answer")
	flags.DurationVar(&o.interval, "interval", time.Minute, "time between two rounds")
	flags.DurationVar(&o.keep, "keep", time.Hour, "how long an address that does not answer any more counts as taken")
	if err := flags.Parse(arguments); err != nil {
		return o, nil, err
	}
	if flags.NArg() > 0 {
		return o, nil, fmt.Errorf("unexpected argument %q: all settings are flags", flags.Arg(0))
	}
	if ports, err = parsePorts(o.ports); err != nil {
		return o, nil, err
	}
	return o, ports, o.validate(ports)
}

func parsePorts(text string) (ports []int, err error) {
	if text == "" {
		return nil, nil
	}
	for part := range strings.SplitSeq(text, ",") {
		port, err := strconv.Atoi(strings.TrimSpace(part))
		if err != nil || port < 1 || port > 65535 {
			return nil, fmt.Errorf("--ports=%s: write numbers such as 22,443", text)
		}
		ports = append(ports, port)
	}
	return ports, nil
}

func (o probeOptions) validate(ports []int) error {
	errs := []error{o.subnets.Validate()}
	if len(ports) == 0 && !o.echo || len(ports) > 16 {
		errs = append(errs, errors.New("--ports: write 1 to 16 ports, or none and --echo"))
	}
	if o.rate < 1 || o.rate > 1000 || o.parallel < 1 || o.parallel > 1000 {
		errs = append(errs, errors.New("--rate, --parallel: write 1 to 1000"))
	}
	if o.timeout < 10*time.Millisecond || o.interval < 0 || o.keep < 0 {
		errs = append(errs, errors.New("--timeout, --interval, --keep: write times such as 1s, 1m and 1h"))
	}
	if (o.certFile == "") != (o.keyFile == "") {
		errs = append(errs, errors.New("--tls-cert-file, --tls-key-file: write both or none"))
	}
	return errors.Join(errs...)
}

// run probes and serves until ctx ends.
func (o probeOptions) run(ctx context.Context, listener net.Listener, ports []int, log logr.Logger) error {
	known := networkprobe.NewKnown(o.subnets, o.keep)
	tcp := networkprobe.TCP{Ports: ports, Timeout: o.timeout, CountRefused: o.countRefused}
	answers := tcp.Answers
	if o.echo {
		echo, err := networkprobe.NewEcho(o.timeout)
		switch {
		case err != nil && len(ports) == 0:
			return err
		case err != nil:
			log.Info("Echo requests are not permitted; TCP is used alone", "error", err.Error())
		default:
			defer echo.Close()
			answers = func(ctx context.Context, addr netip.Addr) bool {
				return echo.Answers(ctx, addr) || tcp.Answers(ctx, addr)
			}
		}
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	prober := &networkprobe.Prober{
		Known: known, Answers: answers, Rate: o.rate, Parallel: o.parallel, Interval: o.interval, Clock: clock.RealClock{}, Log: log,
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		prober.Run(ctx)
	}()
	defer func() { <-ended }()
	defer cancel()
	log.Info("Serving the inventory of addresses that answer", "address", listener.Addr().String(), "subnets", o.subnets.String())
	return o.serve(ctx, listener, networkprobe.NewServer(known, o.tokenFile).Handler(), log)
}

func (o probeOptions) serve(ctx context.Context, listener net.Listener, handler http.Handler, log logr.Logger) error {
	server := &http.Server{
		Handler: handler, ReadTimeout: 10 * time.Second, ReadHeaderTimeout: 5 * time.Second, WriteTimeout: 10 * time.Second, IdleTimeout: time.Minute, MaxHeaderBytes: 16 << 10,
	}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	var err error
	if o.certFile != "" {
		pair, wrong := certfile.Load(o.certFile, o.keyFile, func(err error) {
			log.Error(err, "The certificate was not read again, and the former one is served")
		})
		if wrong != nil {
			return fmt.Errorf("serving the inventory: %w", wrong)
		}
		server.TLSConfig = &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: pair.GetCertificate}
		err = server.ServeTLS(listener, "", "")
	} else {
		err = server.Serve(listener)
	}
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return fmt.Errorf("serving the inventory: %w", err)
}
