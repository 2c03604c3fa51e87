// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"fmt"
	"time"

	"github.com/muster-io/muster/apis/pki"
)

// lifetime of the authorities and of the certificates by which the programs of one cluster know each other. They live in an immutable Secret and are never replaced.
const lifetime = 10 * 365 * 24 * time.Hour

// serviceRange holds the addresses of Services inside a hosted cluster, serviceIP the first of them, which the API server answers at.
const (
	serviceRange = "10.96.0.0/16"
	serviceIP    = "10.96.0.1"
)

// volume is the files that the containers read, by name.
type volume map[string][]byte

// newPKI makes two authorities, the certificates of the programs that call each other, and the key of service-account tokens.
func newPKI(now time.Time) (volume, error) {
	valid := pki.Lasting(now, lifetime)
	v := volume{}
	cluster, err := v.authority("ca", pki.ClusterAuthority, valid)
	if err != nil {
		return nil, err
	}
	front, err := v.authority("front-proxy-ca", pki.ProxyAuthority, valid)
	if err != nil {
		return nil, err
	}
	if err := v.issue("controller-manager", cluster, pki.ControllerManager(), valid); err != nil {
		return nil, err
	}
	if err := v.issue("front-proxy-client", front, pki.FrontProxy(), valid); err != nil {
		return nil, err
	}
	return v, v.serviceAccountKey()
}

// newLeaves makes the serving certificate for the names, and the administrator's, signed by the authority of the identity.
func newLeaves(now time.Time, identity volume, names []string) (volume, error) {
	cluster, err := pki.Parse(identity["ca.crt"], identity["ca.key"])
	if err != nil {
		return nil, fmt.Errorf("reading the authority of the cluster: %w", err)
	}
	valid := validFor(now, servingLifetime)
	v := volume{}
	hosts := append([]string{"localhost", "127.0.0.1", serviceIP}, names...)
	if err := v.issue("apiserver", cluster, pki.APIServer(hosts...), valid); err != nil {
		return nil, err
	}
	return v, v.issue("admin", cluster, pki.Admin(), valid)
}

// validFor is the time in which a certificate is valid. Clocks of readers may be behind by five minutes.
func validFor(now time.Time, lifetime time.Duration) pki.Period {
	return pki.Period{From: now.Add(-5 * time.Minute), Until: now.Add(lifetime)}
}

func (v volume) authority(file, name string, valid pki.Period) (pki.Pair, error) {
	made, err := pki.NewAuthority(name, valid)
	if err != nil {
		return pki.Pair{}, err
	}
	return made, v.add(file, made)
}

func (v volume) issue(file string, authority pki.Pair, leaf pki.Leaf, valid pki.Period) error {
	made, err := authority.Issue(leaf, valid)
	if err != nil {
		return err
	}
	return v.add(file, made)
}

func (v volume) add(file string, made pki.Pair) (err error) {
	v[file+".crt"], v[file+".key"], err = made.Encode()
	return err
}

func (v volume) serviceAccountKey() error {
	key, err := pki.NewKey()
	if err != nil {
		return err
	}
	if v["sa.key"], err = pki.EncodeKey(key); err != nil {
		return err
	}
	v["sa.pub"], err = pki.EncodePublicKey(key)
	return err
}
