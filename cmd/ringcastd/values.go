package main

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/alecthomas/kong"
)

// The types of settings. They never refuse a text while it is read: they keep what was wrong with
// it, so that all problems of a configuration are reported at once and under the setting's name.

// setting is what every type of setting offers to the checks and to --print-config.
type setting interface {
	// problem says what is wrong with the text, "" when nothing is.
	problem() string
	// toml is the value as it would stand in a configuration file.
	toml() string
}

// Text is a setting that is a string.
type Text struct{ V string }

// Num is a setting that is a whole number, not negative.
type Num struct {
	V   int64
	bad string
}

// Size is a number of bytes. It is written plainly or with KiB, MiB or GiB.
type Size struct {
	V   int64
	bad string
}

// Bound is a setting that is a number above 0, or off, which is V = 0. One whose name ends in bytes is
// written like a Size.
type Bound struct {
	V   int64
	bad string
}

// Bool is a setting that is true or false. As a flag it needs no value.
type Bool struct {
	V   bool
	bad string
}

// Choice is a setting that takes one of the words in its enum tag.
type Choice struct {
	V   string
	bad string
}

// Decode reads the text of a Text.
func (s *Text) Decode(ctx *kong.DecodeContext) error {
	v, err := popText(ctx)
	s.V = v
	return err
}

// Decode reads the text of a Num.
func (s *Num) Decode(ctx *kong.DecodeContext) error {
	text, err := popText(ctx)
	if err != nil {
		return err
	}
	*s = Num{}
	n, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
	if err != nil || n < 0 {
		s.bad = fmt.Sprintf("%q is not a whole number from 0 on", text)
		return nil
	}
	s.V = n
	return nil
}

// Decode reads the text of a Size.
func (s *Size) Decode(ctx *kong.DecodeContext) error {
	text, err := popText(ctx)
	if err != nil {
		return err
	}
	*s = Size{}
	n, ok := parseSize(text)
	if !ok {
		s.bad = fmt.Sprintf("%q is not a size: a number of bytes, or a number with KiB, MiB or GiB", text)
		return nil
	}
	s.V = n
	return nil
}

// Decode reads the text of a Bound.
func (s *Bound) Decode(ctx *kong.DecodeContext) error {
	text, err := popText(ctx)
	if err != nil {
		return err
	}
	*s = Bound{}
	text = strings.TrimSpace(text)
	if text == "off" {
		return nil
	}
	n, ok := int64(0), false
	if strings.HasSuffix(ctx.Value.Name, "-bytes") {
		n, ok = parseSize(text)
	} else if n, err = strconv.ParseInt(text, 10, 64); err == nil {
		ok = true
	}
	if !ok || n <= 0 {
		s.bad = fmt.Sprintf("%q is neither a bound above 0 nor off", text)
		return nil
	}
	s.V = n
	return nil
}

// Decode reads the text of a Bool; a flag without a value means true.
func (s *Bool) Decode(ctx *kong.DecodeContext) error {
	*s = Bool{}
	if ctx.Scan.Peek().Type != kong.FlagValueToken {
		s.V = true
		return nil
	}
	text := fmt.Sprint(ctx.Scan.Pop().Value)
	switch strings.ToLower(strings.TrimSpace(text)) {
	case "true", "1", "yes", "on":
		s.V = true
	case "false", "0", "no", "off":
	default:
		s.bad = fmt.Sprintf("%q is neither true nor false", text)
	}
	return nil
}

// IsBool tells kong that the flag needs no value.
func (s *Bool) IsBool() bool { return true }

// Decode reads the text of a Choice.
func (s *Choice) Decode(ctx *kong.DecodeContext) error {
	text, err := popText(ctx)
	if err != nil {
		return err
	}
	*s = Choice{V: text}
	words := strings.Split(ctx.Value.Tag.Get("choices"), ",")
	for _, w := range words {
		if w == text {
			return nil
		}
	}
	s.bad = fmt.Sprintf("%q is none of %s", text, strings.Join(words, ", "))
	return nil
}

// popText takes one value off the scanner. From a file it may be of any TOML type.
func popText(ctx *kong.DecodeContext) (string, error) {
	t, err := ctx.Scan.PopValue("value")
	if err != nil {
		return "", err
	}
	return fmt.Sprint(t.Value), nil
}

// parseSize reads "4096", "64KiB", "16 MiB", "1GiB".
func parseSize(text string) (int64, bool) {
	text = strings.TrimSpace(text)
	unit := int64(1)
	for suffix, u := range map[string]int64{"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30} {
		if digits, ok := strings.CutSuffix(text, suffix); ok {
			text, unit = strings.TrimSpace(digits), u
			break
		}
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 || n > math.MaxInt64/unit {
		return 0, false
	}
	return n * unit, true
}

func (s Text) problem() string   { return "" }
func (s Num) problem() string    { return s.bad }
func (s Size) problem() string   { return s.bad }
func (s Bound) problem() string  { return s.bad }
func (s Bool) problem() string   { return s.bad }
func (s Choice) problem() string { return s.bad }

func (s Text) toml() string { return strconv.Quote(s.V) }
func (s Num) toml() string  { return strconv.FormatInt(s.V, 10) }
func (s Size) toml() string { return strconv.FormatInt(s.V, 10) }
func (s Bound) toml() string {
	if s.V == 0 {
		return `"off"`
	}
	return strconv.FormatInt(s.V, 10)
}
func (s Bool) toml() string   { return strconv.FormatBool(s.V) }
func (s Choice) toml() string { return strconv.Quote(s.V) }
