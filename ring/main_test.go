package ring_test

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

// A test may run this binary again with a variable set: the process then changes its own world
// before any other test starts.
var beforeTests = map[string]func(value string) error{}

func TestMain(m *testing.M) {
	for name, fn := range beforeTests {
		if v := os.Getenv(name); v != "" {
			if err := fn(v); err != nil {
				panic(err)
			}
		}
	}
	goleak.VerifyTestMain(m)
}
