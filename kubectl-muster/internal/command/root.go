// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package command is the plugin's command line: a file per command.
package command

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	agentv1 "github.com/muster-io/muster/apis/agentinstall/v1beta1"
	"github.com/muster-io/muster/apis/buildinfo"
	hivev1 "github.com/muster-io/muster/apis/hive/v1"
	hiveextv1 "github.com/muster-io/muster/apis/hiveextensions/v1beta1"
	ipamv1 "github.com/muster-io/muster/apis/ipam/v1alpha1"
	metal3v1 "github.com/muster-io/muster/apis/metal3/v1alpha1"
)

// Streams are where a command writes: results to Out, progress and errors to Err.
type Streams struct {
	Out, Err io.Writer
}

// session is what all commands of one invocation share.
type session struct {
	Streams
	flags         *genericclioptions.ConfigFlags
	allNamespaces bool
}

// say prints a line of the result.
func (s *session) say(format string, args ...any) { _, _ = fmt.Fprintf(s.Out, format+"\n", args...) }

// tell prints a line about what happens.
func (s *session) tell(format string, args ...any) { _, _ = fmt.Fprintf(s.Err, format+"\n", args...) }

// New makes the command "kubectl muster" with all its commands.
func New(streams Streams) *cobra.Command {
	s := &session{Streams: streams, flags: genericclioptions.NewConfigFlags(true)}
	root := &cobra.Command{
		Use:   "kubectl-muster",
		Short: "Claim clusters, bind machines, and see what is not fine",
		Long: "Claim clusters, bind machines, and see what is not fine.\n\n" +
			"Every command works with custom resources and your own rights. It changes nothing that kubectl could not change.",
		Version:       buildinfo.Version(),
		SilenceUsage:  true,
		SilenceErrors: false,
		Annotations:   map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl muster"},
	}
	root.SetOut(streams.Out)
	root.SetErr(streams.Err)
	s.flags.AddFlags(root.PersistentFlags())
	root.AddCommand(s.claim(), s.release(), s.pools(), s.hosts(), s.bind(), s.unbind(), s.ips(), s.status(), s.gather())
	return root
}

// Scheme has all kinds that the commands read.
func Scheme() (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	return scheme, errors.Join(clientgoscheme.AddToScheme(scheme), hivev1.AddToScheme(scheme), hiveextv1.AddToScheme(scheme),
		agentv1.AddToScheme(scheme), metal3v1.AddToScheme(scheme), ipamv1.AddToScheme(scheme))
}

// config is how the user's kubeconfig and flags say the cluster is reached.
func (s *session) config() (*rest.Config, error) {
	config, err := s.flags.ToRESTConfig()
	if err != nil {
		return nil, err
	}
	config.QPS = -1 // the server's priority and fairness decides
	config.UserAgent = "kubectl-muster"
	config.WarningHandler = rest.NewWarningWriter(s.Err, rest.WarningWriterOptions{Deduplicate: true})
	return config, nil
}

func (s *session) client() (client.Client, error) {
	config, err := s.config()
	if err != nil {
		return nil, err
	}
	scheme, err := Scheme()
	if err != nil {
		return nil, err
	}
	return client.New(config, client.Options{Scheme: scheme})
}

// namespace is that of the flags, or of the kubeconfig's context.
func (s *session) namespace() (string, error) {
	namespace, _, err := s.flags.ToRawKubeConfigLoader().Namespace()
	return namespace, err
}

// scope is the namespace that is listed; "" is all.
func (s *session) scope() (string, error) {
	if s.allNamespaces {
		return corev1.NamespaceAll, nil
	}
	return s.namespace()
}

// listFlags adds the flag of commands that list.
func (s *session) listFlags(c *cobra.Command) *cobra.Command {
	c.Flags().BoolVarP(&s.allNamespaces, "all-namespaces", "A", false, "list the objects of all namespaces")
	return c
}

// page is how many objects a list brings at a time.
const page = 500

// each calls do for all objects of a list's kind in a namespace, a page at a time. Each page is read into a list of its own: do may keep its objects.
func each(ctx context.Context, c client.Reader, kind client.ObjectList, namespace string, do func(client.Object)) error {
	list := kind
	for {
		next := list.GetContinue()
		var ok bool
		if list, ok = kind.DeepCopyObject().(client.ObjectList); !ok {
			return fmt.Errorf("%T is no list", kind)
		}
		if err := c.List(ctx, list, client.InNamespace(namespace), client.Limit(page), client.Continue(next)); err != nil {
			return err
		}
		err := meta.EachListItem(list, func(obj runtime.Object) error {
			if o, ok := obj.(client.Object); ok {
				do(o)
			}
			return nil
		})
		if err != nil || list.GetContinue() == "" {
			return err
		}
	}
}

// served turns an error about a kind that the cluster does not serve into a sentence that says what is missing.
func served(err error, operator string) error {
	if meta.IsNoMatchError(err) || apierrors.IsNotFound(err) && missingKind(err) {
		return fmt.Errorf("the cluster does not serve this kind: %s is not installed", operator)
	}
	return err
}

func missingKind(err error) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status) && status.Status().Details != nil && status.Status().Details.Name == ""
}
