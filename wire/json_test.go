package wire

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Every way in which text can be almost a message is refused, and the error says which.
func TestAlmostRightJSONIsRefused(t *testing.T) {
	deep := func(n int) string {
		return `{"type":"ok","x":` + strings.Repeat("[", n) + strings.Repeat("]", n) + "}"
	}
	hello := func(id string) string { return `{"type":"event_stream_hello","subscription_id":` + id + `}` }
	publish := func(payload string) string {
		return `{"type":"publish","tenant_id":"t","namespace":"n","stream":"s","payload":` + payload + `}`
	}
	for _, c := range []struct{ text, what string }{
		{``, whatSyntax},
		{` `, whatSyntax},
		{`null`, whatType},
		{`[]`, whatType},
		{`"ok"`, whatType},
		{`{}`, whatMissing},
		{`{"typ":"ok"}`, whatMissing},
		{`{"type":5}`, whatType},
		{`{"type":null}`, whatType},
		{`{"type":"ok"`, whatSyntax},
		{`{"type":"ok",}`, whatSyntax},
		{`{"type":"ok"}}`, whatSyntax},
		{`{"type":"ok"} {}`, whatSyntax},
		{`{"type":"ok"}` + "\x00", whatSyntax},
		{"\ufeff" + `{"type":"ok"}`, whatSyntax},
		{`{"type":"ok","a":01}`, whatSyntax},
		{`{"type":"ok","a":+1}`, whatSyntax},
		{`{"type":"ok","a":1.}`, whatSyntax},
		{`{"type":"ok","a":.5}`, whatSyntax},
		{`{"type":"ok","a":1e}`, whatSyntax},
		{`{"type":"ok","a":-}`, whatSyntax},
		{`{"type":"ok","a":NaN}`, whatSyntax},
		{`{"type":"ok","a":tru}`, whatSyntax},
		{`{"type":"ok","a":nulll}`, whatSyntax},
		{`{"type":"ok","a":[1,]}`, whatSyntax},
		{`{"type":"ok","a":[1 2]}`, whatSyntax},
		{`{"type":"ok","a":{1:2}}`, whatSyntax},
		{`{"type":"ok","a":{"b"}}`, whatSyntax},
		{`{"type":"ok","a":[}`, whatSyntax},
		{`{"type":"ok" "a":1}`, whatSyntax},
		{`{'type':'ok'}`, whatSyntax},
		{`{"type":"ok","a":"` + "\n" + `"}`, whatSyntax},
		{`{"type":"ok","a":"\x41"}`, whatSyntax},
		{`{"type":"ok","a":"\u12"}`, whatSyntax},
		{`{"type":"ok","a":"\ud800"}`, whatSyntax},
		{`{"type":"ok","a":"\ud800\u0041"}`, whatSyntax},
		{`{"type":"ok","a":"\udc00\ud800"}`, whatSyntax},
		{`{"type":"ok","a":"` + "\xff" + `"}`, whatUTF8},
		{`{"type":"ok","a":"` + "\xed\xa0\x80" + `"}`, whatUTF8},
		{`{"type":"ok","type":"ok"}`, whatDuplicate},
		{`{"type":"ok","\u0074ype":"ok"}`, whatDuplicate},
		{`{"type":"nonsense","type":"ok"}`, whatDuplicate},
		{deep(depthMax), whatDepth},
		{deep(1 << 20), whatDepth},
		{`{"x":` + strings.Repeat(`{"x":`, 1<<16), whatDepth},
		{hello(`18446744073709551616`), whatRange},
		{hello(`99999999999999999999999999`), whatRange},
		{hello(`-1`), whatRange},
		{hello(`-0`), whatRange},
		{hello(`1.0`), whatType},
		{hello(`1e3`), whatType},
		{hello(`"1"`), whatType},
		{`{"type":"auth","tenant_id":"t","token":"","client_features":4294967296}`, whatRange},
		{`{"type":"auth","tenant_id":"t","token":"","client_flags":65536}`, whatRange},
		{`{"type":"counter_value","request_id":1,"value":9223372036854775808}`, whatRange},
		{`{"type":"counter_value","request_id":1,"value":-9223372036854775809}`, whatRange},
		{publish(`"AA"`), whatBase64},
		{publish(`"AAA"`), whatBase64},
		{publish(`"AB=="`), whatBase64}, // trailing bits
		{publish(`"AA==AA=="`), whatBase64},
		{publish(`"A A="`), whatBase64},
		{publish(`"__8="`), whatBase64}, // the other alphabet
		{publish(`"AA==\n"`), whatBase64},
		{publish(`"A\r\nA=="`), whatBase64},
		{publish(`"=AAA"`), whatBase64},
		{publish(`"AAA=\u0000"`), whatBase64},
		{publish(`[0]`), whatType},
		{publish(`"",` + `"ack":"all"`), whatName},
		{publish(`"",` + `"ack":""`), whatName},
		{publish(`"",` + `"ack":"PER_BATCH"`), whatName},
		{`{"type":"publish_refused","request_id":1,"message":"","reason":{"x":1}}`, whatVariant},
		{`{"type":"publish_refused","request_id":1,"message":"","reason":{"sequence_gap":{"expected":1},"offset_mismatch":{"tail":1}}}`, whatVariant},
		{`{"type":"publish_refused","request_id":1,"message":"","reason":"sequence_gap"}`, whatName},
		{`{"type":"commit","tenant_id":"t","namespace":"n","stream":"s","entity_key":"","event":"","request_id":1,"changes":[{"op":"put","key":"k"}]}`, whatVariant},
		{`{"type":"commit","tenant_id":"t","namespace":"n","stream":"s","entity_key":"","event":"","request_id":1,"changes":[{"op":"swap","key":"k"}]}`, whatName},
		{`{"type":"commit","tenant_id":"t","namespace":"n","stream":"s","entity_key":"","event":"","request_id":1,"changes":[null]}`, whatType},
		{`{"type":"nobody","x":[}`, whatSyntax},
		{`{"type":"nobody"}x`, whatSyntax},
		{`{"type":"nobody","type":"nobody"}`, whatDuplicate},
	} {
		m, err := DecodeMessage([]byte(c.text))
		bad, ok := errors.AsType[*MessageError](err)
		if !ok || !errors.Is(err, ErrMalformed) || bad.What != c.what {
			t.Errorf("%.100q gives %+v, %v; want %q", c.text, m, err, c.what)
		}
	}
}

func TestControlCharactersMustBeEscaped(t *testing.T) {
	for c := range 0x20 {
		text := `{"type":"error","message":"` + string(rune(c)) + `"}`
		if m, err := DecodeMessage([]byte(text)); !errors.Is(err, ErrMalformed) {
			t.Errorf("%q gives %+v, %v", text, m, err)
		}
	}
}

// What is unusual and still right is read.
func TestUnusualJSONIsRead(t *testing.T) {
	for _, c := range []struct {
		text string
		want Message
	}{
		{" \t\r\n{ \"type\" : \"ok\" } \n", &OK{}},
		{`{"subscription_id":18446744073709551615,"\u0074\u0079pe":"event_stream_\u0068ello"}`, &EventStreamHello{SubscriptionID: 1<<64 - 1}},
		{`{"type":"event_stream_hello","subscription_id":9007199254740993}`, &EventStreamHello{SubscriptionID: 1<<53 + 1}},
		{`{"type":"error","message":"\"\\\/\b\f\n\r\t\u00e9\ud83d\ude00\u0000"}`, &ErrorMessage{Message: "\"\\/\b\f\n\r\té😀\x00"}},
		{`{"type":"unsupported","request_type":"` + "\u2028\u007f" + `","extension":null,"request_id":null}`, &Unsupported{RequestType: "\u2028\u007f"}},
		{`{"type":"extension","name":"","body":null}`, &Extension{}},
		{`{"type":"state_value","value":"\/+8=","request_id":0}`, &StateValue{Value: []byte{0xFF, 0xEF}}},
		{`{"type":"cache_put","tenant_id":"","namespace":"","cache":"","key":"","value":"AA=="}`, &CachePut{Value: []byte{0}}},
		{`{"type":"commit","tenant_id":"","namespace":"","stream":"","entity_key":"","event":"","request_id":1,` +
			`"changes":[{"op":"delete","key":"k","value":"AA=="}]}`,
			&Commit{EntityKey: []byte{}, Event: []byte{}, RequestID: 1, Changes: []Change{{Op: ChangeDelete, Key: "k"}}}},
		{`{"type":"commit","tenant_id":"","namespace":"","stream":"","entity_key":"","event":"","request_id":1,"changes":null}`,
			&Commit{EntityKey: []byte{}, Event: []byte{}, RequestID: 1}},
		{`{"type":"publish_batch","tenant_id":"","namespace":"","stream":"","payloads":[ "" , "AA==" ],"key":null,"ack":null}`,
			&PublishBatch{Payloads: [][]byte{{}, {0}}}},
	} {
		got, err := DecodeMessage([]byte(c.text))
		if err != nil {
			t.Errorf("%s: %v", c.text, err)
			continue
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s (-want +got)\n%s", c.text, diff)
		}
	}
	if _, err := DecodeMessage([]byte(`{"type":"ok","x":` + strings.Repeat("[", depthMax-1) + strings.Repeat("]", depthMax-1) + "}")); err != nil {
		t.Errorf("nesting within the limit: %v", err)
	}
}

// A message of an unknown type is told apart from a malformed one, with what an answer needs.
func TestUnknownTypeKeepsWhatAnAnswerNeeds(t *testing.T) {
	for _, c := range []struct {
		text string
		want UnknownTypeError
	}{
		{`{"type":"teleport"}`, UnknownTypeError{Type: "teleport"}},
		{`{"request_id":18446744073709551615,"type":"teleport","name":"n"}`, UnknownTypeError{Type: "teleport", Name: "n", RequestID: new(uint64(1<<64 - 1))}},
		{`{"type":"teleport","request_id":"7"}`, UnknownTypeError{Type: "teleport"}},
		{`{"type":"teleport","request_id":7.5,"name":7}`, UnknownTypeError{Type: "teleport"}},
		{`{"type":"teleport","request_id":7,"request_id":7}`, UnknownTypeError{Type: "teleport"}},
		{`{"type":"","request_id":0}`, UnknownTypeError{RequestID: new(uint64(0))}},
	} {
		m, err := DecodeMessage([]byte(c.text))
		got, ok := errors.AsType[*UnknownTypeError](err)
		if !ok || errors.Is(err, ErrMalformed) {
			t.Errorf("%s gives %v, %v", c.text, m, err)
			continue
		}
		if diff := cmp.Diff(&c.want, got); diff != "" {
			t.Errorf("%s (-want +got)\n%s", c.text, diff)
		}
	}
}

// What is put into a string member arrives as it was, or, if it is no text, as text.
func TestStringsSurviveEncoding(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"", ""},
		{"plain", "plain"},
		{"\x00\x01\x1f\x7f\"\\/\b\f\n\r\t", "\x00\x01\x1f\x7f\"\\/\b\f\n\r\t"},
		{"é\u2028😀\ufffd", "é\u2028😀\ufffd"},
		{"a\xffb\xed\xa0\x80", "a\ufffdb\ufffd\ufffd\ufffd"},
	} {
		payload := AppendMessage(nil, &ErrorMessage{Message: c.text})[HeaderSize:]
		if !json.Valid(payload) {
			t.Errorf("%q encodes as %q", c.text, payload)
		}
		m, err := DecodeMessage(payload)
		if err != nil || m.(*ErrorMessage).Message != c.want {
			t.Errorf("%q comes back as %+v, %v", c.text, m, err)
		}
	}
}

// A hostile array cannot make the decoder reserve much more than it sent (HZ-44, OPS-9).
func TestMessageAllocationIsBoundedByItsBytes(t *testing.T) {
	const n = 1 << 20
	for _, c := range []struct {
		name, open, elem, tail string
		factor                 uint64
	}{
		{"empty payloads", `{"type":"publish_batch","tenant_id":"","namespace":"","stream":"","payloads":[`, `"",`, `""]}`, 10},
		{"small offsets", `{"type":"group_dead_letter_list","request_id":1,"offsets":[`, `0,`, `0]}`, 6},
		{"objects without members", `{"type":"group_records","request_id":1,"records":[`, `{},`, `{}]}`, 5},
		{"objects with the least members", `{"type":"group_records","request_id":1,"records":[`,
			`{"offset":0,"payload":""},`, `{"offset":0,"payload":""}]}`, 5},
		{"one good object", `{"type":"group_records","request_id":1,"records":[{"offset":0,"payload":""},`, `{},`, `{}]}`, 5},
		{"ignored members", `{"type":"ok","x":[`, `0,`, `0]}`, 1},
	} {
		payload := []byte(c.open + strings.Repeat(c.elem, n/len(c.elem)) + c.tail)
		var err error
		got := bytesAllocated(func() { _, err = DecodeMessage(payload) })
		if limit := c.factor * uint64(len(payload)); got > limit {
			t.Errorf("%s: %d bytes for a payload of %d (%v)", c.name, got, len(payload), err)
		}
	}
}

func TestMessageErrorsSayWhere(t *testing.T) {
	for text, want := range map[string]string{
		`{"type":"subscribe","tenant_id":"t","namespace":"n"}`:                         "wire: malformed subscribe: stream: missing",
		`{"type":"subscribe","tenant_id":"t","namespace":"n","stream":"s","start":{}}`: "wire: malformed subscribe: start: missing",
		`{`:                        "wire: malformed message: not JSON",
		`{"type":"topology","a":}`: "wire: malformed topology: not JSON",
		`{"type":"` + strings.Repeat("x", 99) + `"}`: fmt.Sprintf("wire: unknown message type %q", strings.Repeat("x", 64)),
	} {
		if _, err := DecodeMessage([]byte(text)); err == nil || err.Error() != want {
			t.Errorf("%s gives %q, want %q", text, err, want)
		}
	}
}
