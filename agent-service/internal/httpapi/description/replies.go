// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package description

import "encoding/json"

// largeReply is from where on a reply of an agent is compared with the description of the interface without its output: that would be copied many times.
const largeReply = 64 << 10

// isLargeReply is true for a reply of an agent that is large.
func (o *Operation) isLargeReply(body []byte) bool {
	return o.ID == "PostStepReply" && len(body) >= largeReply
}

// checkReply compares a reply with the description but for its output, which has no bounds there.
func (o *Operation) checkReply(body []byte) error {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(body, &fields); err != nil {
		return refuse("the body is not a JSON object")
	}
	if output := fields["output"]; len(output) > 0 && output[0] == '"' {
		fields["output"] = json.RawMessage(`""`)
	}
	var reply any
	small, err := json.Marshal(fields)
	if err == nil {
		err = json.Unmarshal(small, &reply)
	}
	if err == nil {
		err = o.spec.RequestBody.Value.Content.Get("application/json").Schema.Value.VisitJSON(reply)
	}
	if err != nil {
		return refuse(reason(err))
	}
	return nil
}
