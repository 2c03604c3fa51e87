// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package ironic

// Client is one Ironic, with the ironic-inspector beside it if there is one: what this operator asks of it, one method for each call. It is safe for concurrent use.
type Client struct {
	*session
}

// New returns a client. It sends no request yet. The observer may be nil.
func New(c Config, observe Observer) (*Client, error) {
	c, err := c.normal()
	if err != nil {
		return nil, err
	}
	h, err := c.httpClient(observe)
	if err != nil {
		return nil, err
	}
	return &Client{&session{config: c, http: h}}, nil
}
