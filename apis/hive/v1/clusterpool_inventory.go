// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package v1

import (
	"bytes"
	"encoding/json"
)

// UnmarshalJSON reads whatever is stored, so that one pool with a list does not keep the others from being read.
func (i *ClusterPoolInventory) UnmarshalJSON(data []byte) error {
	*i = ClusterPoolInventory{}
	if !bytes.HasPrefix(data, []byte("{")) {
		i.Unusable = bytes.Clone(data)
		return nil
	}
	type plain ClusterPoolInventory
	return json.Unmarshal(data, (*plain)(i))
}

// MarshalJSON writes what was read.
func (i ClusterPoolInventory) MarshalJSON() ([]byte, error) {
	if i.Unusable != nil {
		return i.Unusable, nil
	}
	type plain ClusterPoolInventory
	return json.Marshal(plain(i))
}
