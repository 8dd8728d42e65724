package main

import (
	"bytes"
	"strings"
	"testing"
)

func TestSkippedGuaranteeFailsTheRun(t *testing.T) {
	const start = `{"Action":"start","Package":"p"}` + "\n"
	const end = `{"Action":"pass","Package":"p","Elapsed":1}` + "\n"
	tests := []struct {
		name, events string
		good         bool
		want         string
	}{
		{"all pass", `{"Action":"pass","Package":"p","Test":"TestA"}` + "\n", true, "1 tests passed, 0 failed, 0 skipped"},
		{"ordinary skip", `{"Action":"output","Package":"p","Test":"TestB","Output":"    b_test.go:1: no tmpfs\n"}` + "\n" + `{"Action":"skip","Package":"p","Test":"TestB"}` + "\n", true, "SKIP  p.TestB: b_test.go:1: no tmpfs"},
		{"guarantee skipped", `{"Action":"skip","Package":"p","Test":"TestPromise"}` + "\n", false, "a guarantee was not tested"},
		{"subtest of a guarantee skipped", `{"Action":"skip","Package":"p","Test":"TestPromise/uring"}` + "\n", false, "a guarantee was not tested"},
		{"failure", `{"Action":"output","Package":"p","Test":"TestA","Output":"boom\n"}` + "\n" + `{"Action":"fail","Package":"p","Test":"TestA"}` + "\n", false, "boom"},
		{"build failure", `{"ImportPath":"p","Action":"build-fail"}` + "\n", false, "does not build"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var out bytes.Buffer
			if got := judge(strings.NewReader(start+tt.events+end), &out, []string{"TestPromise"}); got != tt.good {
				t.Errorf("verdict %v, want %v\n%s", got, tt.good, &out)
			}
			if !strings.Contains(out.String(), tt.want) {
				t.Errorf("output lacks %q:\n%s", tt.want, &out)
			}
		})
	}
	if judge(strings.NewReader(""), &bytes.Buffer{}, nil) {
		t.Error("a run without any package passed")
	}
}
