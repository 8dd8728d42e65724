package wire

import (
	"encoding/json"
	"fmt"
	"os"
	"testing"
)

// Client and broker route a key to the same shard, today and in every later version.
func TestKeysKeepTheirShard(t *testing.T) {
	text, err := os.ReadFile("testdata/shard_hash.json")
	if err != nil {
		t.Fatal(err)
	}
	var table struct {
		Rows []struct {
			Shards uint32  `json:"shards"`
			KeyHex *string `json:"key_hex"`
			FNV    string  `json:"fnv1a_hex"`
			Hash   string  `json:"hash_hex"`
			Modulo uint32  `json:"modulo"`
			Jump   uint32  `json:"jump_hash"`
		} `json:"rows"`
	}
	if err := json.Unmarshal(text, &table); err != nil {
		t.Fatal(err)
	}
	if len(table.Rows) != 16 {
		t.Fatalf("%d rows, want 16", len(table.Rows))
	}
	for i, row := range table.Rows {
		var key []byte
		if row.KeyHex != nil {
			key = mustHex(t, *row.KeyHex)
			fnv := fnv1a64(key)
			if got := fmt.Sprintf("%016x %016x", fnv, mix64(fnv)); got != row.FNV+" "+row.Hash {
				t.Errorf("row %d: hashes %s", i, got)
			}
		}
		if got := ShardOf(key, row.KeyHex != nil, row.Shards, RoutingModulo); got != row.Modulo {
			t.Errorf("row %d: modulo %d, want %d", i, got, row.Modulo)
		}
		if got := ShardOf(key, row.KeyHex != nil, row.Shards, RoutingJumpHash); got != row.Jump {
			t.Errorf("row %d: jump %d, want %d", i, got, row.Jump)
		}
	}
}

func TestShardIsInRange(t *testing.T) {
	for _, shards := range []uint32{0, 1, 2, 3, 7, 1000, 1<<32 - 1} {
		for i := range 200 {
			key := fmt.Append(nil, "key-", i)
			for _, r := range []Routing{RoutingModulo, RoutingJumpHash} {
				if got := ShardOf(key, true, shards, r); got >= max(shards, 1) {
					t.Errorf("shard %d of %d", got, shards)
				}
				if got := ShardOf(nil, false, shards, r); got != 0 {
					t.Errorf("no key goes to shard %d", got)
				}
			}
		}
	}
	for _, r := range []Routing{RoutingModulo, RoutingJumpHash} {
		if got, ok := ParseRouting(r.String()); !ok || got != r {
			t.Errorf("%s reads as %v", r, got)
		}
	}
}
