// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package v1beta2 holds the kinds of the group infrastructure.cluster.x-k8s.io in the form of the newer manifests. Objects are stored as v1beta1.
//
// Metal3Data and Metal3DataClaim have one form in both versions. Of a Metal3DataTemplate, metadata names pools in the lists …FromPool only, parameters of bonds and
// indexes are lists, and there is no templateReference: conversion.go says how one form becomes the other.
//
// +kubebuilder:object:generate=true
// +kubebuilder:ac:generate=true
// +groupName=infrastructure.cluster.x-k8s.io
package v1beta2
