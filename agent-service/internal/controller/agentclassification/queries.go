// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package agentclassification

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/clock"

	"github.com/muster-io/muster/agent-service/internal/query"
	agentv1 "github.com/muster-io/muster/apis/agentinstall/v1beta1"
)

// suspended is for how long a query is not asked after it took more than it may: it would keep all others waiting.
const suspended = 10 * time.Minute

// queryError begins the value of a label whose query failed.
const queryError = "QUERYERROR"

// Queries are the queries of AgentClassifications.
type Queries struct {
	process query.Process
	clock   clock.PassiveClock

	mu    sync.Mutex
	known map[types.UID]known
}

// known is what is known of a query.
type known struct {
	text string
	// unreadable is why it cannot be asked.
	unreadable error
	// exceeded is when it took more than it may.
	exceeded time.Time
}

// NewQueries returns no queries yet: each is read when it is first asked.
func NewQueries(c clock.PassiveClock) *Queries {
	return &Queries{clock: c, known: map[types.UID]known{}}
}

// Labels are what the classes say of an inventory. Of several classes of one key the first by name that matches wins, then the first that failed.
func (q *Queries) Labels(ctx context.Context, classes []agentv1.AgentClassification, inventory *agentv1.HostInventory) (map[string]string, error) {
	labels := map[string]string{}
	if len(classes) == 0 {
		return labels, nil
	}
	input, err := json.Marshal(inventory)
	if err != nil {
		return nil, fmt.Errorf("writing an inventory for queries: %w", err)
	}
	ordered := slices.SortedFunc(slices.Values(classes), func(a, b agentv1.AgentClassification) int { return strings.Compare(a.Name, b.Name) })
	for i := range ordered {
		class := &ordered[i]
		key := agentv1.ClassificationPrefix + class.Spec.LabelKey
		before, there := labels[key]
		if !class.DeletionTimestamp.IsZero() || there && !strings.HasPrefix(before, queryError) {
			continue
		}
		matches, failed, err := q.matches(ctx, class, input)
		switch {
		case err != nil:
			return nil, err
		case failed == nil && matches:
			labels[key] = class.Spec.LabelValue
		case failed != nil && !there:
			labels[key] = failure(class)
		}
	}
	return labels, nil
}

// failure is the value of the label of a class whose query failed.
func failure(class *agentv1.AgentClassification) string {
	value := queryError + "-" + class.Name
	return strings.TrimRight(value[:min(len(value), validation.LabelValueMaxLength)], "-_.")
}

// read says what is known of the query of a class.
func (q *Queries) read(class *agentv1.AgentClassification) known {
	q.mu.Lock()
	defer q.mu.Unlock()
	k, there := q.known[class.UID]
	if !there || k.text != class.Spec.Query {
		k = known{text: class.Spec.Query}
		_, k.unreadable = query.Compile(k.text)
		q.known[class.UID] = k
	}
	return k
}

func (q *Queries) forget(uid types.UID) {
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.known, uid)
}

// matches asks the query of a class; failed is what is wrong with it.
func (q *Queries) matches(ctx context.Context, class *agentv1.AgentClassification, input json.RawMessage) (matches bool, failed, err error) {
	k := q.read(class)
	if k.unreadable != nil {
		return false, k.unreadable, nil
	}
	if since := q.clock.Since(k.exceeded); since < suspended {
		return false, query.ErrExceeded, nil
	}
	matches, failed, err = q.process.Matches(ctx, k.text, input)
	if errors.Is(failed, query.ErrExceeded) {
		k.exceeded = q.clock.Now()
		q.mu.Lock()
		defer q.mu.Unlock()
		q.known[class.UID] = k
	}
	return matches, failed, err
}
