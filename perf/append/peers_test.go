package append

import (
	"bytes"
	"encoding/json"
	"os"
	"testing"
)

// The lines of testdata/peers.jsonl are what both sides say; the test of the same name in perf/peers,
// which is a module of its own, reads the same file.
func TestConversationIsTheSameOnBothSides(t *testing.T) {
	b, err := os.ReadFile("testdata/peers.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	lines := bytes.Split(bytes.TrimSpace(b), []byte("\n"))
	values := []any{&peerHello{}, &peerRequest{}, &peerAnswer{}, &peerAnswer{}}
	if len(lines) != len(values) {
		t.Fatalf("%d lines", len(lines))
	}
	for i, v := range values {
		if err := json.Unmarshal(lines[i], v); err != nil {
			t.Fatal(err)
		}
		if got, err := json.Marshal(v); err != nil || !bytes.Equal(got, lines[i]) {
			t.Errorf("line %d\ngot  %s\nwant %s", i+1, got, lines[i])
		}
	}
}
