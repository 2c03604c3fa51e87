// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package command

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/spf13/cobra"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	hivev1 "github.com/muster-io/muster/apis/hive/v1"
)

// claimOptions are the flags of "claim".
type claimOptions struct {
	name                   string
	lifetime, queueTimeout time.Duration
	users, groups          []string
	wait                   bool
	timeout                time.Duration
	save                   string
}

func (s *session) claim() *cobra.Command {
	o := &claimOptions{}
	c := &cobra.Command{
		Use:   "claim POOL",
		Short: "Ask a pool for a cluster",
		Long: "Ask a pool for a cluster. You get access to it, unless --user or --group name others.\n\n" +
			"With --name of a claim that is there already, of the same pool, that one is waited for, and its kubeconfig saved.",
		Example: "  kubectl muster claim small --wait --save-kubeconfig=small.kubeconfig\n  kubectl --kubeconfig=small.kubeconfig get namespaces",
		Args:    cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			return s.runClaim(c.Context(), args[0], o)
		},
		ValidArgsFunction: s.complete(&hivev1.ClusterPoolList{}, 1),
	}
	f := c.Flags()
	f.StringVar(&o.name, "name", "", "name of the claim (default: the pool's, and five characters)")
	f.DurationVar(&o.lifetime, "lifetime", 0, "how long the claim lives once it has a cluster, such as 8h (default: the pool's)")
	f.DurationVar(&o.queueTimeout, "queue-timeout", 0, "how long it waits for a cluster, such as 30m (default: for ever)")
	f.StringArrayVar(&o.users, "user", nil, "user who gets access; system:serviceaccount:NAMESPACE:NAME is a service account (default: you)")
	f.StringArrayVar(&o.groups, "group", nil, "a group that gets access")
	f.BoolVar(&o.wait, "wait", false, "wait until the cluster runs")
	f.DurationVar(&o.timeout, "timeout", 0, "how long to wait; the claim stays (default: for ever)")
	f.StringVar(&o.save, "save-kubeconfig", "", "wait, and save the cluster's kubeconfig in this new file; - prints it")
	return c
}

func (s *session) runClaim(ctx context.Context, pool string, o *claimOptions) error {
	if o.timeout != 0 && !o.wait && o.save == "" {
		return errors.New("--timeout bounds a wait: add --wait or --save-kubeconfig")
	}
	c, err := s.client()
	if err != nil {
		return err
	}
	namespace, err := s.namespace()
	if err != nil {
		return err
	}
	if err := canSave(o.save); err != nil {
		return err
	}
	claim, err := s.createClaim(ctx, c, namespace, pool, o)
	if err != nil || !o.wait && o.save == "" {
		return err
	}
	if o.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, o.timeout)
		defer cancel()
	}
	if err = s.untilRunning(ctx, c, claim); err == nil && o.save != "" {
		err = s.saveKubeconfig(ctx, c, claim, o.save)
	}
	if err != nil {
		s.tell("The claim stays. Give it back: kubectl muster release %s -n %s", claim.Name, namespace)
	}
	return err
}

func (s *session) saveKubeconfig(ctx context.Context, c client.Reader, claim *hivev1.ClusterClaim, path string) error {
	kubeconfig, err := kubeconfigOf(ctx, c, claim.Spec.Namespace)
	if err != nil {
		return err
	}
	return s.save(kubeconfig, path)
}

// createClaim makes the claim, or finds the one that has the requested name already.
func (s *session) createClaim(ctx context.Context, c client.Client, namespace, pool string, o *claimOptions) (*hivev1.ClusterClaim, error) {
	subjects, err := subjects(ctx, c, o)
	if err != nil {
		return nil, err
	}
	claim := &hivev1.ClusterClaim{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: cmp.Or(o.name, hivev1.NewClaimName(pool))}}
	claim.Spec = hivev1.ClusterClaimSpec{ClusterPoolName: pool, Subjects: subjects, Lifetime: optional(o.lifetime), QueueTimeout: optional(o.queueTimeout)}
	if _, err := c.IsObjectNamespaced(claim); err != nil { // it asks the API server, which is not there or does not serve the kind
		return nil, served(err, "pool-operator")
	}
	err = c.Create(ctx, claim)
	if unknown(err) {
		err = s.madeNevertheless(ctx, c, claim, err)
	}
	switch {
	case err == nil:
		s.tell("clusterclaim %s created in namespace %s", claim.Name, namespace)
		return claim, nil
	case !apierrors.IsAlreadyExists(err) || o.name == "":
		return nil, served(err, "pool-operator")
	}
	if err := c.Get(ctx, client.ObjectKeyFromObject(claim), claim); err != nil {
		return nil, err
	}
	if claim.Spec.ClusterPoolName != pool {
		return nil, fmt.Errorf("the claim %s is there already, and asks the pool %s: choose another --name", claim.Name, claim.Spec.ClusterPoolName)
	}
	s.tell("clusterclaim %s is there already", claim.Name)
	return claim, nil
}

// unknown says that the API server may have made what it was asked for: its answer was lost, or it does not know itself.
func unknown(err error) bool {
	var answered apierrors.APIStatus
	var network *net.OpError
	switch {
	case err == nil:
		return false
	case errors.As(err, &answered):
		return answered.Status().Code >= http.StatusInternalServerError
	}
	return !errors.As(err, &network) || network.Op != "dial"
}

// answerFollows is for how long a claim is looked for whose answer was lost: an API server that starts again needs some seconds.
const answerFollows = 10 * time.Second

// madeNevertheless looks for a claim whose answer was lost. Its error is that of the request, with what to do where the claim may be there.
func (s *session) madeNevertheless(ctx context.Context, c client.Reader, claim *hivev1.ClusterClaim, lost error) error {
	patience, cancel := context.WithTimeout(ctx, answerFollows)
	defer cancel()
	found, err := &hivev1.ClusterClaim{}, lost
	_ = wait.PollUntilContextCancel(patience, interval, true, func(ctx context.Context) (bool, error) {
		err = c.Get(ctx, client.ObjectKeyFromObject(claim), found)
		return err == nil || apierrors.IsNotFound(err), nil
	})
	switch {
	case err == nil && found.Spec.ClusterPoolName == claim.Spec.ClusterPoolName:
		*claim = *found
		return nil
	case err == nil || apierrors.IsNotFound(err):
		return lost
	}
	s.tell("The claim may be there. Wait for it: kubectl muster claim %[1]s --name=%[2]s -n %[3]s --wait; or give it back: kubectl muster release %[2]s -n %[3]s",
		claim.Spec.ClusterPoolName, claim.Name, claim.Namespace)
	return lost
}

func optional(d time.Duration) *metav1.Duration {
	if d == 0 {
		return nil
	}
	return &metav1.Duration{Duration: d}
}

// subjects are who gets access to the cluster. Without flags it is the user that the API server says the caller is.
func subjects(ctx context.Context, c client.Client, o *claimOptions) ([]rbacv1.Subject, error) {
	users := o.users
	if len(users)+len(o.groups) == 0 {
		review := &authenticationv1.SelfSubjectReview{}
		if err := c.Create(ctx, review); err != nil {
			return nil, fmt.Errorf("asking the API server who you are (--user says it instead): %w", err)
		}
		users = []string{review.Status.UserInfo.Username}
	}
	var out []rbacv1.Subject
	for _, user := range users {
		out = append(out, hivev1.ClaimSubject(user))
	}
	for _, group := range o.groups {
		out = append(out, rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: group})
	}
	return out, nil
}

// interval between two looks at a claim.
const interval = time.Second

// untilRunning waits for the claim's cluster and prints each new step, and why the API server cannot be asked. A claim that can never be served ends the wait.
func (s *session) untilRunning(ctx context.Context, c client.Client, claim *hivev1.ClusterClaim) error {
	printed, away := "", absence{}
	err := wait.PollUntilContextCancel(ctx, interval, true, func(ctx context.Context) (bool, error) {
		found := &hivev1.ClusterClaim{} // what is read into an object leaves fields that are gone
		if err := c.Get(ctx, client.ObjectKeyFromObject(claim), found); err != nil {
			if apierrors.IsNotFound(err) {
				return false, fmt.Errorf("the claim %s was deleted", claim.Name)
			}
			return false, s.unanswered(ctx, err, &away)
		}
		if away.said {
			printed = ""
		}
		away = absence{}
		*claim = *found
		step, done, err := progress(claim)
		if step != printed && err == nil {
			s.tell("%s", oneLine(step))
			printed = step
		}
		return done, err
	})
	switch {
	case wait.Interrupted(err) && away.said:
		return errors.New("the cluster may not run yet: the API server does not answer")
	case wait.Interrupted(err):
		return fmt.Errorf("the cluster does not run yet: %s", printed)
	}
	return err
}

// absence is how the API server has failed to answer since its last answer.
type absence struct{ said, refused bool }

// unanswered returns an error that ends a wait. Any other is printed, unless the API server is away already. Credentials that are not accepted any more end no wait at first: the next
// request has new ones where a program makes them, or a file has them.
func (s *session) unanswered(ctx context.Context, err error, away *absence) error {
	switch {
	case apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) && away.refused:
		return err
	case apierrors.IsUnauthorized(err):
		away.refused = true
	case ctx.Err() == nil && !away.said:
		s.tell("asking again: %s", oneLine(err.Error()))
		away.said = true
	}
	return nil
}

// progress says how far a claim is, and whether its cluster runs. The error says why it never will.
func progress(claim *hivev1.ClusterClaim) (step string, done bool, err error) {
	pending := hivev1.FindCondition(claim.Status.Conditions, hivev1.ClusterClaimPending)
	running := hivev1.FindCondition(claim.Status.Conditions, hivev1.ClusterClaimRunning)
	switch {
	case !claim.DeletionTimestamp.IsZero():
		return "", false, fmt.Errorf("the claim %s is being deleted", claim.Name)
	case pending == nil:
		return "waiting for pool-operator to look at the claim", false, nil
	case pending.Reason == hivev1.ReasonQueueTimedOut || pending.Reason == hivev1.ReasonClaimPoolDeleting:
		return "", false, errors.New(pending.Message)
	case pending.Status != corev1.ConditionFalse:
		return waiting(claim, pending.Message), false, nil
	case running == nil || running.Reason == hivev1.ReasonInitialized:
		return "cluster " + claim.Spec.Namespace + " is yours", false, nil
	case running.Reason == hivev1.ReasonClusterDeleted || running.Reason == hivev1.ReasonClusterDeleting:
		return "", false, errors.New(running.Message)
	case running.Status == corev1.ConditionTrue:
		return "cluster " + claim.Spec.Namespace + " runs", true, nil
	}
	return "cluster " + claim.Spec.Namespace + " is yours: " + running.Message, false, nil
}

func waiting(claim *hivev1.ClusterClaim, message string) string {
	line := "waiting: " + message
	if claim.Status.QueuePosition > 0 {
		line += fmt.Sprintf(" (number %d in the queue", claim.Status.QueuePosition)
		if at := claim.Status.EstimatedAssignmentTime; at != nil {
			line += ", expected at " + at.Local().Format(time.TimeOnly)
		}
		line += ")"
	}
	return line
}

// rightsFollow is for how long an API server may not know rights yet that were written before the claim said that its cluster runs.
const rightsFollow = 10 * time.Second

// kubeconfigOf reads the administrator's kubeconfig of the cluster in a namespace, with the rights of a claim's subject, which may not be in force yet.
func kubeconfigOf(ctx context.Context, c client.Reader, namespace string) (kubeconfig []byte, err error) {
	patience, cancel := context.WithTimeout(ctx, rightsFollow)
	defer cancel()
	_ = wait.PollUntilContextCancel(patience, interval, true, func(context.Context) (bool, error) {
		kubeconfig, err = readKubeconfig(ctx, c, namespace)
		return !apierrors.IsForbidden(err), nil
	})
	return kubeconfig, err
}

// readKubeconfig reads the cluster by its name, and the Secret that it names.
func readKubeconfig(ctx context.Context, c client.Reader, namespace string) ([]byte, error) {
	cluster := &hivev1.ClusterDeployment{}
	if err := c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: namespace}, cluster); err != nil {
		return nil, fmt.Errorf("reading the cluster %s: %w", namespace, err)
	}
	if cluster.Spec.ClusterMetadata == nil {
		return nil, fmt.Errorf("the cluster %s is not installed", namespace)
	}
	secret := &corev1.Secret{}
	key := client.ObjectKey{Namespace: namespace, Name: cluster.Spec.ClusterMetadata.AdminKubeconfigSecretRef.Name}
	if err := c.Get(ctx, key, secret); err != nil {
		return nil, fmt.Errorf("reading the kubeconfig of the cluster %s: %w", namespace, err)
	}
	if len(secret.Data[hivev1.SecretKeyKubeconfig]) == 0 {
		return nil, fmt.Errorf("the Secret %s has no key %s", key, hivev1.SecretKeyKubeconfig)
	}
	return secret.Data[hivev1.SecretKeyKubeconfig], nil
}

// canSave refuses a file that is there, which may be the kubeconfig of another cluster, and one that cannot be made: its cluster may take an hour to come.
func canSave(path string) error {
	if path == "" || path == "-" {
		return nil
	}
	if _, err := os.Lstat(path); err == nil {
		return fmt.Errorf("the file %s is there already: it is not overwritten", path)
	}
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("the kubeconfig could not be saved: %w", err)
	}
	return errors.Join(file.Close(), os.Remove(path))
}

func (s *session) save(kubeconfig []byte, path string) error {
	if path == "-" {
		_, err := s.Out.Write(kubeconfig)
		return err
	}
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = file.Write(kubeconfig)
	if err = errors.Join(err, file.Close()); err != nil {
		return errors.Join(err, os.Remove(path)) // a part of it would be in the way of the next try
	}
	s.tell("kubeconfig saved: kubectl --kubeconfig=%s get namespaces", path)
	return nil
}

func (s *session) release() *cobra.Command {
	var untilGone bool
	c := &cobra.Command{
		Use:   "release CLAIM...",
		Short: "Give clusters back: they are deleted, and their pools make new ones",
		Args:  cobra.MinimumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			return s.runRelease(c.Context(), args, untilGone)
		},
		ValidArgsFunction: s.complete(&hivev1.ClusterClaimList{}, 0),
	}
	c.Flags().BoolVar(&untilGone, "wait", false, "wait until the clusters are gone")
	return c
}

func (s *session) runRelease(ctx context.Context, names []string, untilGone bool) error {
	c, err := s.client()
	if err != nil {
		return err
	}
	namespace, err := s.namespace()
	if err != nil {
		return err
	}
	var failed error
	for _, name := range names {
		claim := &hivev1.ClusterClaim{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
		var err error
		if untilGone { // its UID tells it from a later one of the name
			err = c.Get(ctx, client.ObjectKeyFromObject(claim), claim)
		}
		if err == nil {
			err = c.Delete(ctx, claim)
		}
		if err != nil {
			failed = errors.Join(failed, served(err, "pool-operator"))
			continue
		}
		s.say("clusterclaim %s released", name)
		if untilGone {
			failed = errors.Join(failed, s.untilGone(ctx, c, claim))
		}
	}
	return failed
}

// untilGone waits until a claim is gone, and prints what its cluster waits for. Another claim may have its name by then.
func (s *session) untilGone(ctx context.Context, c client.Client, claim *hivev1.ClusterClaim) error {
	printed, away := "", absence{}
	err := wait.PollUntilContextCancel(ctx, interval, true, func(ctx context.Context) (bool, error) {
		found := &hivev1.ClusterClaim{}
		err := c.Get(ctx, client.ObjectKeyFromObject(claim), found)
		switch {
		case apierrors.IsNotFound(err) || err == nil && found.UID != claim.UID:
			return true, nil
		case err != nil:
			return false, s.unanswered(ctx, err, &away)
		}
		away = absence{}
		running := hivev1.FindCondition(found.Status.Conditions, hivev1.ClusterClaimRunning)
		if running != nil && running.Reason == hivev1.ReasonClusterDeleting && running.Message != printed {
			s.tell("clusterclaim %s: %s", claim.Name, oneLine(running.Message))
			printed = running.Message
		}
		return false, nil
	})
	if wait.Interrupted(err) {
		return fmt.Errorf("the claim %s is not gone yet", claim.Name)
	}
	return err
}
