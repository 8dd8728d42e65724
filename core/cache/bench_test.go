package cache

import (
	"fmt"
	"testing"
)

func BenchmarkGet(b *testing.B) {
	c := New(Options{})
	keys := make([]string, 1024)
	for i := range keys {
		keys[i] = fmt.Sprintf("key-%04d", i)
		if _, err := c.Put(1, keys[i], make([]byte, 256), 60_000); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if _, ok := c.Get(1, keys[i%len(keys)]); !ok {
			b.Fatal("missing")
		}
	}
}

func BenchmarkPut(b *testing.B) {
	c := New(Options{})
	keys := make([]string, 1024)
	for i := range keys {
		keys[i] = fmt.Sprintf("key-%04d", i)
	}
	value := make([]byte, 256)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if _, err := c.Put(1, keys[i%len(keys)], value, 60_000); err != nil {
			b.Fatal(err)
		}
	}
}
