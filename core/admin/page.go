package admin

import (
	"bytes"
	_ "embed"
	"fmt"
	"html/template"
	"net/http"
	"time"
)

//go:embed page.html
var pageHTML string

// pageTemplate has two parts: "page" is the document, "content" what its script fetches again.
var pageTemplate = template.Must(template.New("").Funcs(template.FuncMap{
	"rate": func(v float64) string { return scale(v, 1000, "", "k", "M", "G") },
	"size": func(v any) string { return scale(number(v), 1024, "B", "KiB", "MiB", "GiB", "TiB") },
	"age":  func(seconds float64) string { return (time.Duration(seconds) * time.Second).String() },
}).Parse(pageHTML))

// pagePolicy lets the page run its own script and style and nothing else, from nowhere else.
const pagePolicy = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// page shows the status to a person.
func (s *Server) page(w http.ResponseWriter, r *http.Request, c *caller) error {
	if err := c.mayViewBroker(); err != nil {
		return err
	}
	name := "page"
	if r.URL.Query().Has("content") {
		name = "content"
	}
	var out bytes.Buffer
	if err := pageTemplate.ExecuteTemplate(&out, name, s.snapshot(c.Services)); err != nil {
		return err
	}
	writeHTML(w, http.StatusOK, out.Bytes())
	return nil
}

// signIn answers a browser that has no token yet with the empty page, which asks for one and keeps
// it in the tab. Nothing of the broker is in it.
func (s *Server) signIn(w http.ResponseWriter) {
	var out bytes.Buffer
	if err := pageTemplate.ExecuteTemplate(&out, "page", nil); err != nil {
		writeError(w, err)
		return
	}
	w.Header().Set("WWW-Authenticate", `Bearer realm="ringcast"`)
	writeHTML(w, http.StatusUnauthorized, out.Bytes())
}

func writeHTML(w http.ResponseWriter, status int, body []byte) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Content-Security-Policy", pagePolicy)
	w.Header().Set("Referrer-Policy", "no-referrer")
	w.WriteHeader(status)
	_, _ = w.Write(body)
}

func number(v any) float64 {
	switch v := v.(type) {
	case int64:
		return float64(v)
	case uint64:
		return float64(v)
	case float64:
		return v
	}
	return 0
}

// scale writes v with the largest unit that leaves at least 1 in front of it.
func scale(v, step float64, units ...string) string {
	i := 0
	for v >= step && i < len(units)-1 {
		v /= step
		i++
	}
	if v == float64(int64(v)) {
		return fmt.Sprintf("%d %s", int64(v), units[i])
	}
	return fmt.Sprintf("%.1f %s", v, units[i])
}
