// Package cache keeps key-value entries of caches in memory: put with a time to live, get, delete.
//
//	core/serve --(catalogue id of the cache, key)--> shard of the map (hash)
//	                                                 mutex | map | LRU list | expiry heap
//	                                                              |          |
//	                       over the byte bound: evict the oldest -+          +- each write frees what expired
//
// A cache is named by its catalogue id, which is never reused: entries of a deleted cache can not
// come back under a new one of the same name. Names, permissions and the question whether a cache
// exists are the caller's (core's registry answers the last).
//
// Who owns what. Put takes over the value; Get hands out the stored bytes, which nobody changes
// afterwards, so that neither copies. Expiry is absolute from the moment of the put and measured
// on the monotonic clock: a jump of the wall clock neither revives nor kills an entry.
//
// Goroutines: none. An expired entry reads as missing at once; its memory is freed by the next
// writes to its shard of the map, or when the byte bound needs it.
//
// Failures: a value that could never fit is refused limit_exceeded. Otherwise the bound is kept by
// evicting, expired entries first, then the least recently used; evictions are counted.
//
// What it refuses to do: it does not survive a restart, it has no watches and no counters, and it
// never grows beyond its bound by more than the one entry being written.
package cache
