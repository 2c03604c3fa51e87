// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package networkprobe

import (
	"crypto/subtle"
	"encoding/json"
	"net/http"
	"os"
	"strings"

	"k8s.io/apimachinery/pkg/types"
)

// maxBody is how long the body of a request may be, in bytes.
const maxBody = 64 << 10

// Server serves what is known by the contract of docs/inventory.md.
type Server struct {
	known *Known
	token string // path of the file
}

// NewServer returns a Server. Requests must have the bearer token of the file, which is read for each of them; an empty path means none.
func NewServer(known *Known, tokenFile string) *Server {
	return &Server{known: known, token: tokenFile}
}

// Handler routes the requests of the contract, and /healthz.
func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) })
	mux.HandleFunc("GET /v1/taken", s.authorized(s.taken))
	mux.HandleFunc("PUT /v1/given/{namespace}/{name}", s.authorized(s.give))
	mux.HandleFunc("DELETE /v1/given/{namespace}/{name}", s.authorized(s.free))
	return mux
}

// authorized lets requests with the token through.
func (s *Server) authorized(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if s.token != "" {
			token, err := os.ReadFile(s.token)
			want := strings.TrimSpace(string(token))
			if err != nil || want == "" {
				http.Error(w, "the token cannot be read", http.StatusInternalServerError)
				return
			}
			if subtle.ConstantTimeCompare([]byte(r.Header.Get("Authorization")), []byte("Bearer "+want)) != 1 {
				http.Error(w, "bearer token required", http.StatusUnauthorized)
				return
			}
		}
		r.Body = http.MaxBytesReader(w, r.Body, maxBody)
		next(w, r)
	}
}

// taken answers with the addresses of a pool that answer. Before every address was probed once it does not answer, so that the operator waits for it.
func (s *Server) taken(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	addresses, complete := s.known.Taken(types.NamespacedName{Namespace: query.Get("namespace"), Name: query.Get("pool")})
	if !complete {
		http.Error(w, "the first round of probes is not complete", http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{"addresses": addresses})
}

// give notes an address that the operator has given.
func (s *Server) give(w http.ResponseWriter, r *http.Request) {
	var given struct {
		Address      string `json:"address"`
		PrefixLength int    `json:"prefixLength"`
	}
	if err := json.NewDecoder(r.Body).Decode(&given); err != nil {
		http.Error(w, "the body is not that of an address that was given", http.StatusBadRequest)
		return
	}
	prefix, err := parseGiven(given.Address, given.PrefixLength)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if !s.known.Give(nameOf(r), prefix) {
		http.Error(w, "there are more addresses given than probed", http.StatusInsufficientStorage)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// free notes that an address is free again.
func (s *Server) free(w http.ResponseWriter, r *http.Request) {
	s.known.Free(nameOf(r))
	w.WriteHeader(http.StatusNoContent)
}

func nameOf(r *http.Request) types.NamespacedName {
	return types.NamespacedName{Namespace: r.PathValue("namespace"), Name: r.PathValue("name")}
}
