// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package claimplan

import (
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	hivev1 "github.com/muster-io/muster/apis/hive/v1"
)

// execute is what the controller's execute does.
func (r *replica) execute(s *Snapshot, action Action) (ended bool, err error) {
	w := r.w
	switch a := action.(type) {
	case AssignCluster:
		claim, err := w.changeClaim(s.Claim.Name, s.Claim.UID, s.Claim.ResourceVersion, "assign", func(c *hivev1.ClusterClaim) {
			c.Spec.Namespace = a.Cluster
			if !hasFinalizer(c) {
				c.Finalizers = append(c.Finalizers, hivev1.FinalizerClusterClaim)
			}
		})
		if err != nil {
			return false, err
		}
		delete(w.preset, s.Claim.UID)
		s.Claim, s.Own, s.Verified = claim, nil, false
		if i := slices.IndexFunc(s.Clusters, func(c Cluster) bool { return c.Namespace == a.Cluster }); i >= 0 {
			s.Own = new(s.Clusters[i])
		}
		r.rightsOf(s, r.view(), a.Cluster)
	case ReturnCluster:
		claim, err := w.changeClaim(s.Claim.Name, s.Claim.UID, s.Claim.ResourceVersion, "return", func(c *hivev1.ClusterClaim) {
			c.Spec.Namespace, c.Finalizers = "", nil
		})
		if err != nil {
			return false, err
		}
		delete(w.preset, s.Claim.UID)
		s.Claim, s.Own, s.Role, s.Binding, s.Verified = claim, nil, nil, nil, false
		s.Lost = s.Lost || a.Why == WhyLost
	case RecordClaim:
		return false, r.recordClaim(s, a)
	case VerifyCluster:
		r.verify(s, a.Cluster)
		return false, nil
	case GrantRights:
		if w.cds[a.Cluster] == nil || w.cds[a.Cluster].UID != a.UID {
			return false, errConflict // the namespace is terminating or gone
		}
		w.rights[a.Cluster] = grant{claim: s.Claim.UID, rules: a.Rules, subjects: a.Subjects}
		w.record("rights in %s for %s", a.Cluster, s.Claim.UID)
		r.rightsOf(s, w.state, a.Cluster)
	case RevokeRights, ReleaseCluster, ReportMissing:
		return false, r.release(s, a)
	case ExpireClaim:
		_, err := w.changeClaim(s.Claim.Name, s.Claim.UID, s.Claim.ResourceVersion, "expire", func(c *hivev1.ClusterClaim) { c.DeletionTimestamp = new(metav1.NewTime(w.now)) })
		if err != nil {
			return true, err
		}
		return true, r.wrote()
	case DropFinalizer:
		_, err := w.changeClaim(s.Claim.Name, s.Claim.UID, s.Claim.ResourceVersion, "released", func(c *hivev1.ClusterClaim) { c.Finalizers = nil })
		if err != nil {
			return true, err
		}
		return true, r.wrote()
	default:
		return false, fmt.Errorf("unknown action %T", action)
	}
	return false, r.wrote()
}

func (r *replica) recordClaim(s *Snapshot, a RecordClaim) error {
	if live := r.w.claims[s.Claim.Name]; live != nil && r.w.preset[s.Claim.UID] && live.ResourceVersion == s.Claim.ResourceVersion {
		r.w.forbidden = fmt.Errorf("claim %s got the cluster that its user preset", s.Claim.UID)
	}
	if live := r.w.cds[a.Cluster]; live != nil && live.ResourceVersion == a.ResourceVersion {
		if c := ClusterOf(live); !c.Usable() {
			r.w.forbidden = fmt.Errorf("claim %s takes cluster %s, which cannot be used", s.Claim.UID, a.Cluster)
		}
	}
	cd, err := r.w.changeCluster(a.Cluster, a.UID, a.ResourceVersion, "claimed", func(cd *hivev1.ClusterDeployment) {
		cd.Spec.ClusterPoolRef.ClaimName, cd.Spec.ClusterPoolRef.ClaimUID = s.Claim.Name, s.Claim.UID
		if cd.Spec.ClusterPoolRef.ClaimedTimestamp == nil {
			cd.Spec.ClusterPoolRef.ClaimedTimestamp = new(metav1.NewTime(a.At))
		}
		cd.Spec.PowerState = hivev1.PowerStateRunning
	})
	if err != nil { // another replica was faster; the next plan starts from the current state
		r.verify(s, a.Cluster)
		return nil //nolint:nilerr // as the comment says
	}
	s.Own = new(ClusterOf(cd))
	for i := range s.Clusters {
		if s.Clusters[i].Namespace == a.Cluster {
			s.Clusters[i] = *s.Own
		}
	}
	return r.wrote()
}

func (r *replica) verify(s *Snapshot, namespace string) {
	r.reads++
	r.own(s, r.w.state, namespace)
	s.Verified = true
	s.Clusters = slices.DeleteFunc(s.Clusters, func(c Cluster) bool { return c.Namespace == namespace })
	if s.Own != nil {
		s.Clusters = append(s.Clusters, *s.Own)
	}
}

func (r *replica) release(s *Snapshot, action Action) error {
	w := r.w
	switch a := action.(type) {
	case RevokeRights:
		delete(w.rights, a.Cluster)
		w.record("no rights in %s (%s)", a.Cluster, a.Why)
		s.Role, s.Binding = nil, nil
	case ReleaseCluster:
		live := w.cds[a.Cluster]
		if live == nil || live.UID != a.UID {
			s.Own.Deleting = true
			return nil
		}
		_, err := w.changeCluster(a.Cluster, a.UID, a.ResourceVersion, "release", func(cd *hivev1.ClusterDeployment) {
			if a.Mark {
				cd.Annotations = map[string]string{hivev1.AnnotationRemoveFromPool: "true"}
			} else if cd.DeletionTimestamp == nil {
				cd.DeletionTimestamp = new(metav1.NewTime(w.now))
			}
		})
		if err != nil {
			return err
		}
		s.Own.Marked, s.Own.Deleting = a.Mark, !a.Mark
	case ReportMissing:
		cd, err := w.changeCluster(a.Cluster, a.UID, a.ResourceVersion, "claim missing", func(cd *hivev1.ClusterDeployment) {
			cd.Status.Conditions = slices.DeleteFunc(slices.Clone(cd.Status.Conditions), func(c hivev1.Condition) bool { return c.Type == hivev1.ClusterDeploymentClaimMissing })
			if !a.Found {
				reason := hivev1.ReasonClaimDeleted
				if a.Restored {
					reason = hivev1.ReasonClaimNotRestored
				}
				cd.Status.Conditions = append(cd.Status.Conditions, hivev1.Condition{
					Type: hivev1.ClusterDeploymentClaimMissing, Status: "True", Reason: reason, LastTransitionTime: metav1.NewTime(w.now),
				})
			}
		})
		if err != nil {
			return err
		}
		s.Own = new(ClusterOf(cd))
	default:
		return fmt.Errorf("releasing a cluster: %T is none of it", action)
	}
	return r.wrote()
}

// orphans is what the controller's releaseOrphans does.
func (r *replica) orphans(name string) error {
	v := r.view()
	mine := v.claims[name]
	for _, cd := range v.cds {
		ref := cd.Spec.ClusterPoolRef
		if ref.ClaimName != name || mine != nil && ref.ClaimUID == mine.UID {
			continue
		}
		s := &Snapshot{Own: new(ClusterOf(cd)), Pool: v.pool}
		r.rightsOf(s, v, cd.Name)
		for action, _ := GiveUp(r.w.now, *s, false); action != nil; action, _ = GiveUp(r.w.now, *s, false) {
			if live := r.w.claims[name]; live != nil && live.UID == ref.ClaimUID {
				return errConflict
			}
			if err := r.release(s, action); err != nil {
				return err
			}
		}
	}
	return nil
}
