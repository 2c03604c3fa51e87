// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package command

import (
	"slices"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	agentv1 "github.com/muster-io/muster/apis/agentinstall/v1beta1"
)

// complete offers the names of a list's kind in the namespace, for at most so many arguments; 0 is any number.
func (s *session) complete(list client.ObjectList, most int) cobra.CompletionFunc {
	return func(c *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if most > 0 && len(args) >= most {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		api, err := s.client()
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		namespace, err := s.namespace()
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		var names []string
		err = each(c.Context(), api, list, namespace, func(obj client.Object) {
			name := obj.GetName()
			if a, is := obj.(*agentv1.Agent); is {
				name = hostname(a)
			}
			if !slices.Contains(args, name) {
				names = append(names, name)
			}
		})
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}
