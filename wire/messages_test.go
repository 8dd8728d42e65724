package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
)

// messageLines returns the lines of testdata/messages.jsonl: of each message, written by hand from
// the protocol's tables, first the least that may be sent, then one or more with everything.
func messageLines(t testing.TB) []string {
	t.Helper()
	text, err := os.ReadFile("testdata/messages.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	return slices.Collect(func(yield func(string) bool) {
		for line := range strings.Lines(string(text)) {
			if !yield(strings.TrimSpace(line)) {
				return
			}
		}
	})
}

// Every message of the protocol decodes, and encodes to the same text: names, order, what is left
// out and what is always sent.
func TestEveryMessageDecodesAndEncodes(t *testing.T) {
	missing := maps.Clone(messageSpecs)
	for _, line := range messageLines(t) {
		m, err := DecodeMessage([]byte(line))
		if err != nil {
			t.Errorf("%s\n%v", line, err)
			continue
		}
		delete(missing, m.Type())
		frame := AppendMessage([]byte("before"), m)
		h, err := ParseHeader(frame[6:])
		if err != nil || h.Flags != 0 || int(h.Length) != len(line) {
			t.Errorf("%s: header %+v, %v", m.Type(), h, err)
		}
		if got := string(frame[6+HeaderSize:]); got != line {
			t.Errorf("decoded and encoded\n%s, got\n%s", line, got)
		}
	}
	for name := range missing {
		t.Errorf("no line for %s", name)
	}
	if n := len(messageSpecs); n != len(clientMessages)+len(brokerMessages) {
		t.Errorf("%d types for %d messages", n, len(clientMessages)+len(brokerMessages))
	}
}

// mayBeMissing lists the members that are always sent but need not be there.
var mayBeMissing = []string{
	"cache_put.ttl_ms", "cache_watch_started.resnapshot", "group_poll.wait_ms", "cache_event.expires_at_millis",
}

// mayBeNull lists the required members for which null is a value.
var mayBeNull = []string{"cache_value.value", "state_value.value"}

// minimalLines returns the first line of each message, whose members are the required ones.
func minimalLines(t *testing.T) map[string]string {
	lines := map[string]string{}
	for _, line := range messageLines(t) {
		var o struct{ Type string }
		if err := json.Unmarshal([]byte(line), &o); err != nil {
			t.Fatal(err)
		}
		if lines[o.Type] == "" {
			lines[o.Type] = line
		}
	}
	return lines
}

// with returns the object line with one member replaced, or removed when value is "".
func with(t *testing.T, line, member, value string) []byte {
	t.Helper()
	var o map[string]json.RawMessage
	if err := json.Unmarshal([]byte(line), &o); err != nil {
		t.Fatal(err)
	}
	delete(o, member)
	if value != "" {
		o[member] = json.RawMessage(value)
	}
	text, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// A required member that is missing or null makes the message malformed, by name; the exceptions
// are the listed ones.
func TestMissingMemberIsRefused(t *testing.T) {
	for name, line := range minimalLines(t) {
		for member := range jsonObject(t, []byte(line)) {
			full := name + "." + member
			for _, value := range []string{"", "null"} {
				_, err := DecodeMessage(with(t, line, member, value))
				allowed := slices.Contains(mayBeMissing, full) || value == "null" && slices.Contains(mayBeNull, full)
				bad, isMessageError := errors.AsType[*MessageError](err)
				switch {
				case allowed:
					if err != nil {
						t.Errorf("%s = %q: %v", full, value, err)
					}
				case !isMessageError || !errors.Is(err, ErrMalformed):
					t.Errorf("%s = %q: %v", full, value, err)
				case bad.Member != member:
					t.Errorf("%s = %q: blames %q", full, value, bad.Member)
				}
			}
		}
	}
}

// No member takes a value of another JSON type, and none may be given twice, also when the second
// one is spelled with escapes.
func TestWrongTypeAndDuplicateAreRefused(t *testing.T) {
	kinds := map[byte][]string{
		'"': {"5", "true", "[]", "{}"},
		'0': {`"5"`, "true", "[]", "{}", "1.0", "1e3", "-0"},
		't': {"0", `"true"`, "[]"},
		'[': {"0", `""`, "{}"},
		'{': {"0", "true", "[]"},
	}
	for _, line := range messageLines(t) {
		var o map[string]json.RawMessage
		if err := json.Unmarshal([]byte(line), &o); err != nil {
			t.Fatal(err)
		}
		var name string
		if err := json.Unmarshal(o["type"], &name); err != nil {
			t.Fatal(err)
		}
		for member, value := range o {
			if name+"."+member == "extension.body" {
				continue // any value
			}
			first := value[0]
			switch {
			case first == 'n':
				continue
			case first == 'f':
				first = 't'
			case first == '-' || '0' <= first && first <= '9':
				first = '0'
			}
			wrong := kinds[first]
			if member == "start" || member == "condition" || member == "reason" {
				wrong = []string{"0", "true", "[]", `"nonsense"`, "{}", `{"offset":-1}`, `{"version":"1"}`, `{"sequence_gap":{}}`}
			}
			for _, w := range wrong {
				if w == "-0" && name+"."+member == "counter_value.value" || w == "-0" && member == "delta" {
					continue // zero, for a signed number
				}
				if m, err := DecodeMessage(with(t, line, member, w)); !errors.Is(err, ErrMalformed) {
					t.Errorf("%s.%s = %s gives %+v, %v", name, member, w, m, err)
				}
			}
			for _, again := range []string{member, `\u00` + hexByte(member[0]) + member[1:]} {
				twice := line[:len(line)-1] + `,"` + again + `":` + string(value) + "}"
				if m, err := DecodeMessage([]byte(twice)); !errors.Is(err, ErrMalformed) {
					t.Errorf("%s gives %+v, %v", twice, m, err)
				}
			}
		}
	}
}

func hexByte(c byte) string {
	const digits = "0123456789abcdef"
	return string([]byte{digits[c>>4], digits[c&15]})
}

// Unknown members are ignored wherever they stand and whatever they hold, even twice, and members
// come in any order.
func TestUnknownMembersAreIgnoredAtEveryLevel(t *testing.T) {
	const junk = `"zz":{"a":[1,-2.5E+7,"\ud83d\ude00",{"type":"x"}]},"zz":null,`
	for _, line := range messageLines(t) {
		want, err := DecodeMessage([]byte(line))
		if err != nil {
			t.Fatal(err)
		}
		padded := strings.ReplaceAll(line, "{", "{"+junk)
		padded = strings.ReplaceAll(padded, ",}", "}")
		if want.Type() == "extension" {
			padded = "{" + junk + line[1:]
		}
		got, err := DecodeMessage([]byte(padded))
		if err != nil {
			t.Errorf("%s\n%v", padded, err)
			continue
		}
		if a, b := AppendMessage(nil, got), AppendMessage(nil, want); !bytes.Equal(a, b) {
			t.Errorf("read as\n%s, want\n%s", a[HeaderSize:], b[HeaderSize:])
		}
		// encoding/json writes members in alphabetical order.
		shuffled, err := DecodeMessage(with(t, line, "zzz", "0"))
		if err != nil {
			t.Errorf("%s shuffled: %v", line, err)
			continue
		}
		if a, b := AppendMessage(nil, shuffled), AppendMessage(nil, want); want.Type() != "extension" && !bytes.Equal(a, b) {
			t.Errorf("shuffled, read as\n%s, want\n%s", a[HeaderSize:], b[HeaderSize:])
		}
	}
}

func TestBrokerOnlyTypes(t *testing.T) {
	for _, m := range []Message{&OK{}, &ErrorMessage{}, &AuthOK{}, &GroupInfo{}, &Event{}, &Unsupported{}} {
		if !BrokerOnly(m) {
			t.Errorf("%s may come from a client", m.Type())
		}
	}
	for _, m := range []Message{&Auth{}, &Extension{}, &Publish{}, &CacheWatch{}, &Topology{}, &SubscriptionsList{}} {
		if BrokerOnly(m) {
			t.Errorf("%s may only come from a broker", m.Type())
		}
	}
}
