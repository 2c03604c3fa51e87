// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package description

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"
	"unicode/utf8"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"

	"github.com/muster-io/muster/agent-service/internal/domain"
)

// refuse is the answer to a request that the description does not allow.
func refuse(reason string) error { return domain.Refuse(domain.Invalid, "BadRequest", "%s", reason) }

// TakesLogs is true for the upload of an archive: it is not read before its caller is known to be a host, and only once.
func (o *Operation) TakesLogs() bool { return o.ID == "UploadLogs" }

// Check refuses what the description does not allow, with a reason. It takes the body into memory, but for that of an archive of logs.
func (o *Operation) Check(r *http.Request) error {
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil || !utf8.ValidString(query.Encode()) || unprintable(query) {
		return refuse("the query cannot be read")
	}
	// Forms are read by who takes them.
	form := o.spec.RequestBody != nil && o.spec.RequestBody.Value.Content.Get("application/json") == nil
	checked := false
	if o.spec.RequestBody != nil && !o.TakesLogs() {
		body, err := readable(r, form)
		if err != nil {
			return err
		}
		if checked = o.isLargeReply(body); checked {
			if err := o.checkReply(body); err != nil {
				return err
			}
		}
	}
	params := map[string]string{}
	for _, p := range o.item.Parameters {
		params[p.Value.Name] = r.PathValue(p.Value.Name)
	}
	err = openapi3filter.ValidateRequest(r.Context(), &openapi3filter.RequestValidationInput{
		Request: r, PathParams: params, QueryParams: query,
		Route:   &routers.Route{Spec: o.document, Path: o.path, PathItem: o.item, Method: r.Method, Operation: o.spec},
		Options: &openapi3filter.Options{ExcludeRequestBody: form || checked},
	})
	if err != nil {
		return refuse(reason(err))
	}
	return nil
}

// readable takes the body into memory: one JSON text, unless it is a form, without what a database cannot keep: the character NUL. Only replies of agents may hold it,
// which are cleaned, and archives.
func readable(r *http.Request, form bool) ([]byte, error) {
	var whole bytes.Buffer
	whole.Grow(int(max(r.ContentLength, 0)) + bytes.MinRead) // its size was looked at before
	if _, err := whole.ReadFrom(r.Body); err != nil {
		if _, large := errors.AsType[*http.MaxBytesError](err); large {
			return nil, err
		}
		return nil, refuse("the body cannot be read")
	}
	body := whole.Bytes()
	if !strings.HasSuffix(r.URL.Path, "/instructions") && !strings.HasSuffix(r.URL.Path, "/logs") && bytes.Contains(body, []byte(`\u0000`)) {
		return nil, refuse("the body must not contain the character NUL")
	}
	if !form && len(body) > 0 && !json.Valid(body) {
		return nil, refuse("the body is not JSON, or more than one JSON value")
	}
	if r.Header.Get("Content-Type") == "" && len(body) > 0 {
		r.Header.Set("Content-Type", "application/json")
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	return body, nil
}

func unprintable(query url.Values) bool {
	for name, values := range query {
		for _, v := range append(values, name) {
			if strings.ContainsRune(v, 0) || !utf8.ValidString(v) {
				return true
			}
		}
	}
	return false
}

// reason says in one sentence where a request differs from the description, without its values: they may be secrets.
func reason(err error) string {
	var where string
	var request *openapi3filter.RequestError
	if errors.As(err, &request) {
		if request.Parameter != nil {
			where = request.Parameter.In + " parameter " + request.Parameter.Name + ": "
		}
	}
	if schema, is := errors.AsType[*openapi3.SchemaError](err); is {
		if field := strings.Join(schema.JSONPointer(), "."); field != "" {
			where += field + ": "
		}
		return where + schema.Reason
	}
	if request != nil && request.Reason != "" {
		return where + request.Reason
	}
	if request != nil && request.Err != nil {
		return where + request.Err.Error()
	}
	return where + "the request cannot be read"
}
