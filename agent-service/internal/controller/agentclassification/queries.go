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

	"github.com/itchyny/gojq"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	agentv1 "github.com/muster-io/muster/apis/agentinstall/v1beta1"
)

// patience is how long a query may take.
const patience = 2 * time.Second

// queryError begins the value of a label whose query failed.
const queryError = "QUERYERROR"

var errNotBoolean = errors.New("the query does not return true or false")

// Queries are the compiled queries of AgentClassifications.
type Queries struct {
	mu    sync.Mutex
	known map[types.UID]compiled
}

type compiled struct {
	text string
	code *gojq.Code
	err  error
}

// NewQueries returns no queries yet: each is compiled when it is first asked.
func NewQueries() *Queries { return &Queries{known: map[types.UID]compiled{}} }

// Labels are what the classes say of an inventory. Of several classes of one key the first by name that matches wins, then the first that failed.
func (q *Queries) Labels(ctx context.Context, classes []agentv1.AgentClassification, inventory *agentv1.HostInventory) map[string]string {
	labels := map[string]string{}
	if len(classes) == 0 {
		return labels
	}
	input, err := generic(inventory)
	ordered := slices.SortedFunc(slices.Values(classes), func(a, b agentv1.AgentClassification) int { return strings.Compare(a.Name, b.Name) })
	for i := range ordered {
		class := &ordered[i]
		key := agentv1.ClassificationPrefix + class.Spec.LabelKey
		before, there := labels[key]
		if !class.DeletionTimestamp.IsZero() || there && !strings.HasPrefix(before, queryError) {
			continue
		}
		matches, failed := false, err
		if failed == nil {
			matches, failed = q.matches(ctx, class, input)
		}
		switch {
		case failed == nil && matches:
			labels[key] = class.Spec.LabelValue
		case failed != nil && !there:
			labels[key] = failure(class)
		}
	}
	return labels
}

// failure is the value of the label of a class whose query failed.
func failure(class *agentv1.AgentClassification) string {
	value := queryError + "-" + class.Name
	return strings.TrimRight(value[:min(len(value), validation.LabelValueMaxLength)], "-_.")
}

func generic(inventory *agentv1.HostInventory) (any, error) {
	encoded, err := json.Marshal(inventory)
	if err != nil {
		return nil, err
	}
	var input any
	err = json.Unmarshal(encoded, &input)
	return input, err
}

func (q *Queries) compile(class *agentv1.AgentClassification) (*gojq.Code, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if c, there := q.known[class.UID]; there && c.text == class.Spec.Query {
		return c.code, c.err
	}
	c := compiled{text: class.Spec.Query}
	var parsed *gojq.Query
	if parsed, c.err = gojq.Parse(c.text); c.err == nil {
		c.code, c.err = gojq.Compile(parsed)
	}
	if c.err != nil {
		c.err = fmt.Errorf("the query cannot be read: %w", c.err)
	}
	q.known[class.UID] = c
	return c.code, c.err
}

func (q *Queries) forget(uid types.UID) {
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.known, uid)
}

// matches asks the query, which has a bounded time and sees nothing but the inventory.
func (q *Queries) matches(ctx context.Context, class *agentv1.AgentClassification, input any) (bool, error) {
	code, err := q.compile(class)
	if err != nil {
		return false, err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	answer, more := code.RunWithContext(ctx, input).Next()
	if !more {
		return false, errNotBoolean
	}
	switch answer := answer.(type) {
	case bool:
		return answer, nil
	case error:
		return false, answer
	default:
		return false, errNotBoolean
	}
}
