package main

import (
	"context"
	"fmt"
	"io"
	"time"
	"unicode/utf8"

	"github.com/ringcast/ringcast/client"
	"github.com/ringcast/ringcast/wire"
)

type cacheCmd struct {
	Put    cachePut    `cmd:"" help:"Store a value."`
	Get    cacheGet    `cmd:"" help:"Print a value."`
	Delete cacheDelete `cmd:"" aliases:"rm" help:"Remove a key."`
}

// withCache connects and makes one call, which may take as long as the settings say.
func (s *Settings) withCache(ctx context.Context, cache string, call func(context.Context, *client.Cache) error) error {
	conn, _, err := s.connect(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	k, err := conn.Cache(cache)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, s.Timeout)
	defer cancel()
	return call(ctx, k)
}

type cachePut struct {
	Cache string        `arg:"" help:"Cache."`
	Key   string        `arg:"" help:"Key."`
	Value *string       `arg:"" optional:"" help:"Value. Without one: all of standard input."`
	TTL   time.Duration `name:"ttl" help:"How long it is kept. Default: for ever."`
}

func (c *cachePut) Run(ctx context.Context, env *environment, s *Settings) error {
	var value []byte
	if c.Value != nil {
		value = []byte(*c.Value)
	} else {
		var err error
		if value, err = io.ReadAll(io.LimitReader(env.stdin, wire.MaxFrameBytes)); err != nil {
			return fmt.Errorf("read standard input: %w", err)
		}
	}
	err := s.withCache(ctx, c.Cache, func(ctx context.Context, k *client.Cache) error {
		return k.Put(ctx, c.Key, value, c.TTL)
	})
	if err != nil {
		return err
	}
	if env.json {
		return env.emit(map[string]any{"cache": c.Cache, "key": c.Key, "stored": len(value)})
	}
	return nil
}

// cacheEntry is a value as --json prints it.
type cacheEntry struct {
	Cache       string  `json:"cache"`
	Key         string  `json:"key"`
	Found       bool    `json:"found"`
	Value       *string `json:"value,omitempty"`
	ValueBase64 []byte  `json:"value_base64,omitempty"`
}

func newCacheEntry(cache, key string, value []byte, found bool) cacheEntry {
	e := cacheEntry{Cache: cache, Key: key, Found: found}
	switch {
	case !found:
	case utf8.Valid(value):
		text := string(value)
		e.Value = &text
	default:
		e.ValueBase64 = value
	}
	return e
}

type cacheGet struct {
	Cache string `arg:"" help:"Cache."`
	Key   string `arg:"" help:"Key."`
	Raw   bool   `help:"Print the bytes without a line end."`
}

func (c *cacheGet) Run(ctx context.Context, env *environment, s *Settings) error {
	var value []byte
	var found bool
	err := s.withCache(ctx, c.Cache, func(ctx context.Context, k *client.Cache) (err error) {
		value, found, err = k.Get(ctx, c.Key)
		return err
	})
	if err != nil {
		return err
	}
	if env.json {
		return env.emit(newCacheEntry(c.Cache, c.Key, value, found))
	}
	if !found {
		return fmt.Errorf("cache %s has no key %s", c.Cache, c.Key)
	}
	if !c.Raw {
		value = append(value, '\n')
	}
	_, err = env.stdout.Write(value)
	return err
}

type cacheDelete struct {
	Cache string `arg:"" help:"Cache."`
	Key   string `arg:"" help:"Key."`
}

func (c *cacheDelete) Run(ctx context.Context, env *environment, s *Settings) error {
	var value []byte
	var found bool
	err := s.withCache(ctx, c.Cache, func(ctx context.Context, k *client.Cache) (err error) {
		value, found, err = k.Delete(ctx, c.Key)
		return err
	})
	if err != nil {
		return err
	}
	if env.json {
		return env.emit(newCacheEntry(c.Cache, c.Key, value, found))
	}
	word := "removed"
	if !found {
		word = "was not there"
	}
	_, err = fmt.Fprintf(env.stdout, "%s %s\n", c.Key, word)
	return err
}
