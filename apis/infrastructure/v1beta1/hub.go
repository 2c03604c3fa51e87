// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package v1beta1

// Hub marks the version that others are converted to and from.
func (*Metal3DataTemplate) Hub() {}
