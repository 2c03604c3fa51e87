// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package service

import (
	"context"
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/muster-io/muster/agent-service/internal/hardware"
)

// CreateInfraEnv implements InfraEnvs.
func (s *Service) CreateInfraEnv(ctx context.Context, by Principal, request NewInfraEnv) (*InfraEnv, error) {
	id, err := newID(request.ID)
	if err != nil {
		return nil, err
	}
	settings := request.InfraEnvSettings
	settings.complete()
	if err := settings.check(); err != nil {
		return nil, err
	}
	if err := checkName(request.Name); err != nil {
		return nil, err
	}
	var made *InfraEnv
	err = s.update(ctx, func(ctx context.Context, w *work) error {
		there, err := w.InfraEnv(ctx, id)
		if err != nil {
			return err
		}
		if there != nil {
			return Refuse(Conflict, "AlreadyExists", "InfraEnv %s exists already", id)
		}
		if settings.ClusterID != "" {
			if err := w.takes(ctx, by, settings.ClusterID, settings.CPUArchitecture); err != nil {
				return err
			}
		}
		made = &InfraEnv{
			ID: id, Name: request.Name, Owner: by.Owner(), Kube: request.Kube, InfraEnvSettings: settings,
			Generations: Generations{ImageGeneration: max(request.ImageGeneration, 1), HostGeneration: 1}, ImageUpdatedAt: w.now, CreatedAt: w.now, UpdatedAt: w.now,
		}
		if by.Admin && request.Owner != nil {
			made.Owner = *request.Owner
		}
		if err := s.CheckImage(made); err != nil {
			return err
		}
		w.events = append(w.events, Event{
			Name: "infra_env_registered", InfraEnvID: id, Severity: Info, Category: "user", Message: "Successfully registered InfraEnv " + made.Name, At: w.now,
			ForInfraEnv: true, Props: json.RawMessage("{}"),
		})
		w.changed(Change{Kind: InfraEnvChanged, ID: id})
		return w.PutInfraEnv(ctx, made)
	}, settings.ClusterID)
	if err != nil {
		return nil, err
	}
	return made, nil
}

func newID(id string) (string, error) {
	if id == "" {
		return uuid.NewString(), nil
	}
	return id, checkID("id", id)
}

// checkID lets only UUIDs pass, in their usual form.
func checkID(what, id string) error {
	if parsed, err := uuid.Parse(id); err != nil || parsed.String() != id {
		return Refuse(Invalid, "IDInvalid", "%s %q is not a UUID in lower case", what, bound(id, 64))
	}
	return nil
}

// GetInfraEnv implements InfraEnvs.
func (s *Service) GetInfraEnv(ctx context.Context, by Principal, id string) (*InfraEnv, error) {
	var e *InfraEnv
	err := s.view(ctx, func(ctx context.Context, r Reader) (err error) {
		e, err = ownInfraEnv(ctx, r, by, id)
		return err
	})
	return e, err
}

func (s *Service) view(ctx context.Context, do func(context.Context, Reader) error) error {
	return s.noted(s.store.View(ctx, do))
}

func ownInfraEnv(ctx context.Context, r Reader, by Principal, id string) (*InfraEnv, error) {
	e, err := r.InfraEnv(ctx, id)
	if err != nil {
		return nil, err
	}
	if e == nil || !by.Owns(e.Owner) {
		return nil, notFound("InfraEnv", id)
	}
	return e, nil
}

// ListInfraEnvs implements InfraEnvs.
func (s *Service) ListInfraEnvs(ctx context.Context, by Principal, filter InfraEnvFilter) (found List[InfraEnv], err error) {
	err = s.view(ctx, func(ctx context.Context, r Reader) (err error) {
		found, err = r.InfraEnvs(ctx, Scope{by}, filter)
		return err
	})
	return found, err
}

// UpdateInfraEnv implements InfraEnvs.
func (s *Service) UpdateInfraEnv(ctx context.Context, by Principal, id string, change func(*InfraEnvSettings) error) (*InfraEnv, error) {
	var e *InfraEnv
	err := s.update(ctx, func(ctx context.Context, w *work) (err error) {
		if e, err = ownInfraEnv(ctx, w, by, id); err != nil {
			return err
		}
		before := e.InfraEnvSettings
		e.AgentLabels, e.KernelArguments = maps.Clone(e.AgentLabels), slices.Clone(e.KernelArguments)
		if err := change(&e.InfraEnvSettings); err != nil {
			return err
		}
		e.complete()
		if err := w.follow(ctx, by, before.ClusterID, e); err != nil {
			return err
		}
		switch {
		case e.CPUArchitecture != hardware.Architecture(before.CPUArchitecture):
			return Refuse(Invalid, "CPUArchitectureImmutable", "the architecture of an InfraEnv cannot be changed")
		case reflect.DeepEqual(before, e.InfraEnvSettings):
			return nil
		}
		if err := e.check(); err != nil {
			return err
		}
		if !reflect.DeepEqual(before.shown(), e.shown()) {
			if err := s.CheckImage(e); err != nil {
				return err
			}
			e.ImageUpdatedAt = w.now
			w.events = append(w.events, Event{
				Name: "image_info_updated", InfraEnvID: id, Severity: Info, Category: "user", Message: "Updated image information", At: w.now, ForInfraEnv: true,
				Props: json.RawMessage("{}"),
			})
		}
		e.UpdatedAt = w.now
		w.changed(Change{Kind: InfraEnvChanged, ID: id})
		return w.PutInfraEnv(ctx, e)
	})
	if err != nil {
		return nil, err
	}
	return e, nil
}

// follow is why the cluster of an InfraEnv cannot become another one, nil where it can: where the former one was deleted.
func (w *work) follow(ctx context.Context, by Principal, from string, e *InfraEnv) error {
	if from == e.ClusterID {
		return nil
	}
	former, err := w.cluster(ctx, from)
	if err != nil {
		return err
	}
	if from == "" || e.ClusterID == "" || former != nil {
		return Refuse(Invalid, "ClusterImmutable", "the cluster of an InfraEnv cannot be changed")
	}
	return w.takes(ctx, by, e.ClusterID, e.CPUArchitecture)
}

// takes is why machines of an architecture cannot be bound to a cluster as they register, nil where they can.
func (w *work) takes(ctx context.Context, by Principal, clusterID, architecture string) error {
	c, err := w.ownCluster(ctx, by, clusterID)
	if err != nil {
		return err
	}
	if !hardware.Fits(architecture, c.CPUArchitecture) {
		return Refuse(Invalid, "ArchitectureMismatch", "an InfraEnv for %s cannot boot machines for cluster %s, which is for %s", architecture, c.ID, c.CPUArchitecture)
	}
	return nil
}

// shown is what the image shows.
func (e InfraEnvSettings) shown() InfraEnvSettings {
	e.AutoApprove, e.AgentLabels, e.IPXEScriptType = false, nil, ""
	return e
}

// RotateTokens implements InfraEnvs.
func (s *Service) RotateTokens(ctx context.Context, by Principal, id string, hosts bool) (*InfraEnv, error) {
	return s.revoke(ctx, by, id, "infra_env_tokens_rotated", "Tokens of images that were made before are no longer accepted", func(e *InfraEnv, now time.Time) {
		e.ImageGeneration++
		if hosts {
			e.HostGeneration++
		}
		e.ImageUpdatedAt = now
	})
}

// RevokeHostTokens implements InfraEnvs.
func (s *Service) RevokeHostTokens(ctx context.Context, by Principal, id string) error {
	_, err := s.revoke(ctx, by, id, "infra_env_host_tokens_revoked", "Tokens of the hosts that were made before are no longer accepted", func(e *InfraEnv, _ time.Time) {
		e.HostGeneration++
	})
	return err
}

// revoke changes the generations of an InfraEnv and tells it.
func (s *Service) revoke(ctx context.Context, by Principal, id, event, message string, change func(e *InfraEnv, now time.Time)) (*InfraEnv, error) {
	var e *InfraEnv
	err := s.update(ctx, func(ctx context.Context, w *work) (err error) {
		if e, err = ownInfraEnv(ctx, w, by, id); err != nil {
			return err
		}
		change(e, w.now)
		e.UpdatedAt = w.now
		w.events = append(w.events, Event{
			Name: event, InfraEnvID: id, Severity: Info, Category: "user", At: w.now, ForInfraEnv: true, Props: json.RawMessage("{}"), Message: message,
		})
		w.changed(Change{Kind: InfraEnvChanged, ID: id})
		return w.PutInfraEnv(ctx, e)
	})
	if err != nil {
		return nil, err
	}
	return e, nil
}

// TokenGenerations implements InfraEnvs.
func (s *Service) TokenGenerations(ctx context.Context, id string) (Generations, error) {
	e, err := s.knownInfraEnv(ctx, id)
	if KindOf(err) == NotFound && s.RestoreTime > 0 && (!s.loaded.Load() || s.clock.now()-time.Duration(s.loadedAt.Load()) < s.RestoreTime) {
		awaited := Refuse(Unavailable, "InfraEnvAwaited", "InfraEnv %s is not known yet: the service began a moment ago", id)
		awaited.RetryAfter = restorePause
		return Generations{}, awaited
	}
	if err != nil {
		return Generations{}, err
	}
	return e.Generations, nil
}

// restorePause is how long machines wait for an InfraEnv that may come back.
const restorePause = 5 * time.Second

// knownInfraEnv is an InfraEnv from memory. It is not to be changed.
func (s *Service) knownInfraEnv(ctx context.Context, id string) (*InfraEnv, error) {
	return s.infraEnvs.get(id, func() (*InfraEnv, error) { return s.GetInfraEnv(ctx, Machine, id) })
}

// knownCluster is a cluster from memory. It is not to be changed.
func (s *Service) knownCluster(ctx context.Context, id string) (*Cluster, error) {
	return s.clusters.get(id, func() (*Cluster, error) { return s.GetCluster(ctx, Machine, id) })
}
