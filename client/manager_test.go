package client

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ringcast/ringcast/netio"
	"github.com/ringcast/ringcast/wire"
)

// A token that the broker refuses is not tried again and again.
func TestRefusedTokenFailsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newFakeBroker()
		b.onAuth = func(int, *wire.Auth) *wire.Error { return wire.NewError(wire.CodeUnauthenticated, "auth failed") }
		_, err := Dial(bounded(t), "fake:1", WithToken("bad"), withConnect(b.connect(1<<20)))
		if !errors.Is(err, wire.ErrUnauthenticated) || b.auths != 1 {
			t.Errorf("%v after %d attempts", err, b.auths)
		}
		if _, ok := errors.AsType[*DialError](err); !ok {
			t.Errorf("%T", err)
		}
		b.close()
	})
}

// Attempts to connect are spread and bounded by the caller's context; the error says why.
func TestUnreachableBrokerIsTriedUntilTheContextEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		attempts := 0
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		_, err := Dial(ctx, "fake:1", WithToken("t"), withConnect(
			func(context.Context, string, netio.DialOptions) (netio.Conn, error) {
				attempts++
				return nil, netio.ErrHandshakeTimeout
			}))
		if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, netio.ErrHandshakeTimeout) {
			t.Errorf("got %v", err)
		}
		if attempts < 30 || attempts > 300 {
			t.Errorf("%d attempts in 30 s with waits of at most 1 s", attempts)
		}
	})
}
