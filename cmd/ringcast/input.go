package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/ringcast/ringcast/wire"
)

// input gives the records to publish: arguments, or the lines of files, or those of standard input.
type input struct {
	args  []string
	files []string
	whole bool // each file is one record
	stdin io.Reader

	line []byte // memory of the record being read
}

// total is how many bytes there are to read, 0 if that cannot be known.
func (in *input) total() int64 {
	var n int64
	for _, a := range in.args {
		n += int64(len(a))
	}
	for _, name := range in.files {
		info, err := os.Stat(name)
		if err != nil || !info.Mode().IsRegular() {
			return 0
		}
		n += info.Size()
	}
	if f, ok := in.stdin.(*os.File); ok && n == 0 {
		if info, err := f.Stat(); err == nil && info.Mode().IsRegular() {
			return info.Size()
		}
	}
	return n
}

// each calls f for every record; f must not keep it. Waiting for standard input ends with ctx.
func (in *input) each(ctx context.Context, f func(rec []byte) error) error {
	for _, a := range in.args {
		if err := f([]byte(a)); err != nil {
			return err
		}
	}
	for _, name := range in.files {
		if err := in.file(name, f); err != nil {
			return err
		}
	}
	if len(in.args) == 0 && len(in.files) == 0 {
		return in.stream("standard input", newInterruptible(ctx.Done(), ctx.Err, in.stdin), f)
	}
	return nil
}

func (in *input) file(name string, f func([]byte) error) error {
	file, err := os.Open(name)
	if err != nil {
		return err
	}
	defer file.Close()
	return in.stream(name, file, f)
}

func (in *input) stream(name string, r io.Reader, f func([]byte) error) error {
	if in.whole {
		all, err := io.ReadAll(io.LimitReader(r, wire.MaxFrameBytes+1))
		if err != nil {
			return fmt.Errorf("read %s: %w", name, err)
		}
		return f(all)
	}
	br := bufio.NewReaderSize(r, 64<<10)
	for {
		in.line = in.line[:0]
		var err error
		for {
			var part []byte
			part, err = br.ReadSlice('\n')
			in.line = append(in.line, part...)
			if !errors.Is(err, bufio.ErrBufferFull) {
				break
			}
			if len(in.line) > wire.MaxFrameBytes {
				return fmt.Errorf("%s: a line is longer than a record may be (%d bytes)", name, wire.MaxFrameBytes)
			}
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return fmt.Errorf("read %s: %w", name, err)
		}
		if len(in.line) > 0 {
			if err := f(bytes.TrimSuffix(in.line, []byte{'\n'})); err != nil {
				return err
			}
		}
		if err != nil {
			return nil
		}
	}
}
