package demo

import (
	"bufio"
	_ "embed"
	"fmt"
	"os"
	"strings"
)

//go:embed alice.txt
var alice string

// writeText makes the file: lines numbered lines of the embedded text, over and over. It returns
// its size.
func writeText(name string, lines int) (size int64, err error) {
	source := strings.Split(strings.TrimSuffix(alice, "\n"), "\n")
	f, err := os.Create(name)
	if err != nil {
		return 0, err
	}
	w := bufio.NewWriterSize(f, 256<<10)
	for i := range lines {
		n, err := fmt.Fprintf(w, "%07d %s\n", i+1, source[i%len(source)])
		size += int64(n)
		if err != nil {
			f.Close()
			return size, err
		}
	}
	if err := w.Flush(); err != nil {
		f.Close()
		return size, err
	}
	return size, f.Close()
}

// eachLine calls f with the lines from (counted from 0) to to of the file, without line ends.
func eachLine(name string, from, to int, f func(line []byte) error) error {
	file, err := os.Open(name)
	if err != nil {
		return err
	}
	defer file.Close()
	sc := bufio.NewScanner(file)
	for i := 0; i < to && sc.Scan(); i++ {
		if i < from {
			continue
		}
		if err := f(sc.Bytes()); err != nil {
			return err
		}
	}
	return sc.Err()
}
