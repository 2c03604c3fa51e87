// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package command

import (
	"context"
	"errors"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/muster-io/muster/kubectl-muster/internal/gather"
)

func (s *session) gather() *cobra.Command {
	var file string
	c := &cobra.Command{
		Use:   "must-gather",
		Short: "Collect objects, events and logs into one archive without secrets",
		Long: "Collect the objects of Muster's kinds, their events, and the operators' logs into one archive, for support.\n\n" +
			"No Secret and no ConfigMap is read. Tokens, private keys, first-boot data and what addresses hold beside host and path are taken out. " +
			"missing.txt in the archive names what you may not read, or does not answer. Look through it before you hand it on: names and network addresses stay.",
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return s.runGather(c.Context(), file, c.Flags().Changed("namespace"))
		},
	}
	c.Flags().StringVarP(&file, "file", "f", "", "the archive to write (default: muster-TIME.tar.gz)")
	return c
}

func (s *session) runGather(ctx context.Context, path string, oneNamespace bool) (err error) {
	config, err := s.config()
	if err != nil {
		return err
	}
	options := gather.Options{Now: time.Now(), Progress: func(step string) { s.tell("%s", step) }}
	if oneNamespace {
		if options.Namespace, err = s.namespace(); err != nil {
			return err
		}
	}
	if path == "" {
		path = "muster-" + options.Now.UTC().Format("20060102-150405") + ".tar.gz"
	}
	out, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(path)
		}
	}()
	if err = errors.Join(gather.Write(ctx, config, out, options), out.Close()); err != nil {
		return err
	}
	s.say("%s", path)
	return nil
}
