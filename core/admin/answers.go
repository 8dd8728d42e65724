package admin

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strconv"

	"github.com/ringcast/ringcast/wire"
)

// errorBody is what a refused request gets.
type errorBody struct {
	Code    string `json:"code"`
	Message string `json:"message"`
	Retry   string `json:"retry"`
}

// statusOf maps codes to HTTP; what is not here is the broker's own fault.
var statusOf = map[wire.Code]int{
	wire.CodeUnauthenticated:  http.StatusUnauthorized,
	wire.CodeForbidden:        http.StatusForbidden,
	wire.CodeNotFound:         http.StatusNotFound,
	wire.CodeInvalidRequest:   http.StatusBadRequest,
	wire.CodeLimitExceeded:    http.StatusTooManyRequests,
	wire.CodeOverloaded:       http.StatusServiceUnavailable,
	wire.CodeDraining:         http.StatusServiceUnavailable,
	wire.CodeShardUnavailable: http.StatusServiceUnavailable,
}

// statusError is a refusal whose HTTP status its code does not tell.
type statusError struct {
	status int
	err    *wire.Error
}

func (e *statusError) Error() string { return e.err.Error() }
func (e *statusError) Unwrap() error { return e.err }

func refuse(status int, code wire.Code, format string, args ...any) error {
	return &statusError{status, wire.NewError(code, format, args...).WithRetry(wire.RetryFatal)}
}

func writeError(w http.ResponseWriter, err error) {
	if se, ok := errors.AsType[*statusError](err); ok {
		writeStatus(w, se.status, se.err)
		return
	}
	we := wire.AsError(err)
	status, ok := statusOf[we.Code]
	if !ok {
		status = http.StatusInternalServerError
	}
	writeStatus(w, status, we)
}

func writeStatus(w http.ResponseWriter, status int, e *wire.Error) {
	switch {
	case status == http.StatusUnauthorized:
		w.Header().Set("WWW-Authenticate", `Bearer realm="ringcast"`)
	case e.Retry == wire.RetryAfter || e.Retry == wire.RetryNow:
		w.Header().Set("Retry-After", strconv.FormatUint(max(1, e.RetryAfterMS/1000), 10))
	}
	writeJSON(w, status, errorBody{e.Code.String(), e.Message, e.Retry.String()})
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	_ = enc.Encode(v) // the client is gone when this fails
}

// readJSON decodes a body of at most bodyMax bytes into v. An empty body leaves v as it is; a
// member that v does not have is refused, since a misspelt one must not be ignored.
func readJSON(w http.ResponseWriter, r *http.Request, v any) error {
	dec := json.NewDecoder(http.MaxBytesReader(w, r.Body, bodyMax))
	dec.DisallowUnknownFields()
	err := dec.Decode(v)
	if errors.Is(err, io.EOF) {
		return nil
	}
	if err == nil {
		if _, err = dec.Token(); errors.Is(err, io.EOF) {
			return nil
		}
		err = errors.New("more than one JSON value")
	}
	return bodyError(err)
}

// bodyError classifies what went wrong with a body.
func bodyError(err error) error {
	if tooLarge, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return refuse(http.StatusRequestEntityTooLarge, wire.CodeLimitExceeded, "the body is above %d bytes", tooLarge.Limit)
	}
	return refuse(http.StatusBadRequest, wire.CodeInvalidRequest, "the body cannot be read: %v", err)
}
