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

	"github.com/muster-io/muster/agent-service/internal/domain"
	"github.com/muster-io/muster/agent-service/internal/hardware"
	"github.com/muster-io/muster/agent-service/internal/transaction"
)

// InfraEnvs is what users do with InfraEnvs.
type InfraEnvs struct{ *core }

// CreateInfraEnv makes an InfraEnv that belongs to the principal.
func (s *InfraEnvs) CreateInfraEnv(ctx context.Context, by domain.Principal, request domain.NewInfraEnv) (*domain.InfraEnv, error) {
	id, err := newID(request.ID)
	if err != nil {
		return nil, err
	}
	settings := request.InfraEnvSettings
	settings.Complete()
	if err := settings.Check(); err != nil {
		return nil, err
	}
	if err := domain.CheckName(request.Name); err != nil {
		return nil, err
	}
	var made *domain.InfraEnv
	err = s.engine.Update(ctx, func(ctx context.Context, w *transaction.Work) error {
		there, err := w.InfraEnv(ctx, id)
		if err != nil {
			return err
		}
		if there != nil {
			return domain.Refuse(domain.Conflict, "AlreadyExists", "InfraEnv %s exists already", id)
		}
		if settings.ClusterID != "" {
			if err := w.Takes(ctx, by, settings.ClusterID, settings.CPUArchitecture); err != nil {
				return err
			}
		}
		made = &domain.InfraEnv{
			ID: id, Name: request.Name, Owner: by.Owner(), Kube: request.Kube, InfraEnvSettings: settings,
			Generations: domain.Generations{ImageGeneration: max(request.ImageGeneration, 1), HostGeneration: 1}, ImageUpdatedAt: w.Now, CreatedAt: w.Now, UpdatedAt: w.Now,
		}
		if request.Restored {
			made.RestoredAt = w.Now
		}
		if by.Admin && request.Owner != nil {
			made.Owner = *request.Owner
		}
		if err := s.CheckImage(made); err != nil {
			return err
		}
		w.Recorded = append(w.Recorded, domain.Event{
			Name: "infra_env_registered", InfraEnvID: id, Severity: domain.Info, Category: "user", Message: "Successfully registered InfraEnv " + made.Name, At: w.Now,
			ForInfraEnv: true, Props: json.RawMessage("{}"),
		})
		w.Changed(domain.Change{Kind: domain.InfraEnvChanged, ID: id})
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
	return id, domain.CheckID("id", id)
}

// GetInfraEnv returns an InfraEnv of the principal.
func (s *InfraEnvs) GetInfraEnv(ctx context.Context, by domain.Principal, id string) (*domain.InfraEnv, error) {
	return s.ownInfraEnv(ctx, by, id)
}

// ListInfraEnvs returns InfraEnvs of the principal.
func (s *InfraEnvs) ListInfraEnvs(ctx context.Context, by domain.Principal, filter domain.InfraEnvFilter) (found domain.List[domain.InfraEnv], err error) {
	err = s.engine.View(ctx, func(ctx context.Context, r transaction.Reader) (err error) {
		found, err = r.InfraEnvs(ctx, domain.Scope{Principal: by}, filter)
		return err
	})
	return found, err
}

// UpdateInfraEnv lets change edit the settings in a transaction; whatever it empties is cleared. An error of change is
// returned as it is. An equal one is not written, and ImageUpdatedAt moves only when the image's content does.
func (s *InfraEnvs) UpdateInfraEnv(ctx context.Context, by domain.Principal, id string, change func(*domain.InfraEnvSettings) error) (*domain.InfraEnv, error) {
	var e *domain.InfraEnv
	err := s.engine.Update(ctx, func(ctx context.Context, w *transaction.Work) (err error) {
		if e, err = transaction.OwnInfraEnv(ctx, w, by, id); err != nil {
			return err
		}
		before := e.InfraEnvSettings
		e.AgentLabels, e.KernelArguments = maps.Clone(e.AgentLabels), slices.Clone(e.KernelArguments)
		if err := change(&e.InfraEnvSettings); err != nil {
			return err
		}
		e.Complete()
		if err := w.Follow(ctx, by, before.ClusterID, e); err != nil {
			return err
		}
		switch {
		case e.CPUArchitecture != hardware.Architecture(before.CPUArchitecture):
			return domain.Refuse(domain.Invalid, "CPUArchitectureImmutable", "the architecture of an InfraEnv cannot be changed")
		case reflect.DeepEqual(before, e.InfraEnvSettings):
			return nil
		}
		if err := e.Check(); err != nil {
			return err
		}
		if !reflect.DeepEqual(before.InImage(), e.InImage()) {
			if err := s.CheckImage(e); err != nil {
				return err
			}
			e.ImageUpdatedAt = w.Now
			w.Recorded = append(w.Recorded, domain.Event{
				Name: "image_info_updated", InfraEnvID: id, Severity: domain.Info, Category: "user", Message: "Updated image information", At: w.Now, ForInfraEnv: true,
				Props: json.RawMessage("{}"),
			})
		}
		e.UpdatedAt = w.Now
		w.Changed(domain.Change{Kind: domain.InfraEnvChanged, ID: id})
		return w.PutInfraEnv(ctx, e)
	})
	if err != nil {
		return nil, err
	}
	return e, nil
}

// RotateTokens makes tokens of the image (scoped to the InfraEnv) of older generations open nothing, at once. Running hosts
// keep working: their tokens are narrowed to the host and carry HostGeneration, or they are Admitted; with hosts that ends too.
func (s *InfraEnvs) RotateTokens(ctx context.Context, by domain.Principal, id string, hosts bool) (*domain.InfraEnv, error) {
	return s.revoke(ctx, by, id, "infra_env_tokens_rotated", "Tokens of images that were made before are no longer accepted", func(e *domain.InfraEnv, now time.Time) {
		e.ImageGeneration++
		if hosts {
			e.HostGeneration++
		}
		e.ImageUpdatedAt = now
	})
}

// RevokeHostTokens makes all tokens of the InfraEnv's hosts open nothing, at once: those of agents, which register again with the token of their image, those of installed
// systems, and what agents were Admitted with.
func (s *InfraEnvs) RevokeHostTokens(ctx context.Context, by domain.Principal, id string) error {
	_, err := s.revoke(ctx, by, id, "infra_env_host_tokens_revoked", "Tokens of the hosts that were made before are no longer accepted", func(e *domain.InfraEnv, _ time.Time) {
		e.HostGeneration++
	})
	return err
}

// revoke changes the generations of an InfraEnv and announces it.
func (s *InfraEnvs) revoke(ctx context.Context, by domain.Principal, id, event, message string, change func(e *domain.InfraEnv, now time.Time)) (*domain.InfraEnv, error) {
	var e *domain.InfraEnv
	err := s.engine.Update(ctx, func(ctx context.Context, w *transaction.Work) (err error) {
		if e, err = transaction.OwnInfraEnv(ctx, w, by, id); err != nil {
			return err
		}
		change(e, w.Now)
		e.UpdatedAt = w.Now
		w.Recorded = append(w.Recorded, domain.Event{
			Name: event, InfraEnvID: id, Severity: domain.Info, Category: "user", At: w.Now, ForInfraEnv: true, Props: json.RawMessage("{}"), Message: message,
		})
		w.Changed(domain.Change{Kind: domain.InfraEnvChanged, ID: id})
		return w.PutInfraEnv(ctx, e)
	})
	if err != nil {
		return nil, err
	}
	return e, nil
}
