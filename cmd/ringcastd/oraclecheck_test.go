package main

import (
	"strings"
	"testing"

	"github.com/ringcast/ringcast/client"
	"github.com/ringcast/ringcast/wire"
)

// An oracle that sees nothing passes everything: each defect that it is for is shown to it here.
func TestOracleFindsEachDefect(t *testing.T) {
	type ev struct {
		off uint64
		id  uint32
		n   uint64
	}
	tests := []struct {
		name   string
		events []ev
		tear   bool
		want   string
	}{
		{"good", []ev{{0, 0, 0}, {1, 1, 0}, {2, 0, 1}, {3, 1, 1}}, false, ""},
		{"unknown record is missing", []ev{{0, 0, 0}, {1, 1, 0}, {2, 0, 1}}, false, ""},
		{"acked record is lost", []ev{{0, 0, 0}, {1, 1, 0}}, false, "is lost"},
		{"gap", []ev{{0, 0, 0}, {2, 0, 1}}, false, "a gap or a duplicate"},
		{"twice", []ev{{0, 0, 0}, {1, 1, 0}, {2, 1, 0}}, false, "comes twice"},
		{"order", []ev{{0, 1, 1}, {1, 1, 0}}, false, "comes after"},
		{"wrong place", []ev{{0, 1, 0}, {1, 0, 0}}, false, "was acked at 0 and is at 1"},
		{"refused and there", []ev{{0, 0, 0}, {1, 1, 0}, {2, 0, 1}, {3, 0, 2}}, false, "was refused"},
		{"never sent", []ev{{0, 0, 0}, {1, 1, 7}}, false, "was never sent"},
		{"torn", []ev{{0, 0, 0}}, true, "checksum"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			a, b := &series{id: 0}, &series{id: 1}
			acked := func(off uint64) client.Ack { return client.Ack{Offset: off, HasOffset: true} }
			a.told(a.next(), acked(0), nil)
			a.told(a.next(), acked(2), nil)
			a.told(a.next(), client.Ack{}, wire.ErrOverloaded)
			b.told(b.next(), client.Ack{}, wire.ErrUnacknowledged)
			b.told(b.next(), client.Ack{}, wire.ErrUnacknowledged)
			o := newOracle([]*series{a, b})
			var err error
			for _, e := range tt.events {
				payload := record(e.id, e.n)
				if tt.tear {
					payload[len(payload)/2] ^= 1
				}
				if err = o.see(client.Event{Offset: e.off, HasOffset: true, Payload: payload}); err != nil {
					break
				}
			}
			if err == nil {
				err = o.missing()
			}
			switch {
			case tt.want == "" && err != nil:
				t.Error(err)
			case tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)):
				t.Errorf("error %v, want %q", err, tt.want)
			}
		})
	}
}
