package netio

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/ringcast/ringcast/wire"
)

// sessionSpy counts the session tickets that a client is given.
type sessionSpy struct{ puts int }

func (s *sessionSpy) Get(string) (*tls.ClientSessionState, bool)  { return nil, false }
func (s *sessionSpy) Put(_ string, state *tls.ClientSessionState) { s.puts++ }

// 200 streams with half a frame each, held by readers that wait for the rest, do not stop stream 201, though
// together they sent many times the connection's window (HZ-31).
func TestHalfSentStreamsDoNotStopOthers(t *testing.T) {
	tt := newTestTLS(t)
	s := tt.listen(t, nil)
	client, server := tt.pair(t, s, nil)
	pool := wire.NewPool(64 << 20)
	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer client.CloseWithError(0, "")
	defer stop()
	wg.Go(func() {
		for {
			st, err := server.AcceptStream(ctx)
			if err != nil {
				return
			}
			wg.Go(func() {
				defer st.CancelRead(ResetNone)
				fr := NewFrameReader(st, pool)
				fr.SetMax(wire.MaxFrameBytes)
				_, b, err := fr.Next()
				if err != nil {
					return
				}
				st.Write(b.Bytes())
				b.Release()
				st.Close()
			})
		}
	})
	half := frame(0, pattern(200<<10))[:100<<10]
	for range 200 {
		st, err := client.OpenStream(ctx)
		if err != nil {
			t.Fatal(err)
		}
		st.SetWriteDeadline(time.Now().Add(10 * time.Second))
		if _, err := st.Write(half); err != nil {
			t.Fatal(err)
		}
	}
	start := time.Now()
	st, err := client.OpenStream(ctx)
	if err != nil {
		t.Fatal(err)
	}
	st.SetReadDeadline(time.Now().Add(5 * time.Second))
	if _, err := st.Write(frame(0, []byte("whole"))); err != nil {
		t.Fatal(err)
	}
	b, err := readAll(st)
	if string(b) != "whole" || err != nil {
		t.Fatalf("%q %v", b, err)
	}
	if took := time.Since(start); took > time.Second {
		t.Fatalf("answered after %s", took)
	}
}

// A stream that the reader gives up mid-frame gives its window back: 300 of them, each half a window large,
// and the connection still carries data (HZ-31).
func TestRefusedStreamsGiveTheirWindowBack(t *testing.T) {
	tt := newTestTLS(t)
	s := tt.listen(t, func(o *ServerOptions) { o.StreamWindow = 128 << 10; o.ConnWindow = 256 << 10 })
	client, server := tt.pair(t, s, nil)
	deadline := time.Now().Add(10 * time.Second)
	for i := range 300 {
		st, err := client.OpenUniStream(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		st.SetWriteDeadline(deadline)
		_, err = st.Write(make([]byte, 64<<10))
		if _, _, refused := ResetCode(err); err != nil && !refused { // refused: sooner than it was written
			t.Fatalf("stream %d: %v", i, err)
		}
		r, err := server.AcceptUniStream(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		r.CancelRead(ResetNone)
	}
	echo(t, client, server)
}

// A write that waits for a reader is freed when the reader stops the stream, resets tell their code, and the
// stream's context ends (HZ-33).
func TestBlockedWriteIsFreedWhenThePeerStops(t *testing.T) {
	tt := newTestTLS(t)
	s := tt.listen(t, nil)
	client, server := tt.pair(t, s, func(o *DialOptions) { o.StreamWindow = 64 << 10; o.ConnWindow = 1 << 20 })
	for range 20 {
		out, err := server.OpenUniStream(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 1)
		go func() {
			_, err := out.Write(make([]byte, 4<<20))
			done <- err
		}()
		in, err := client.AcceptUniStream(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(in, make([]byte, 1000)); err != nil {
			t.Fatal(err)
		}
		select {
		case err := <-done:
			t.Fatalf("the write did not block: %v", err)
		default:
		}
		start := time.Now()
		in.CancelRead(7)
		err = <-done
		if code, remote, ok := ResetCode(err); code != 7 || !remote || !ok || !IsClosed(err) {
			t.Fatalf("the writer sees %v", err)
		}
		if took := time.Since(start); took > time.Second {
			t.Fatalf("freed after %s", took)
		}
		<-out.Context().Done()
		if err := out.Close(); err == nil {
			t.Fatal("FIN on a stopped stream")
		} else if code, remote, ok := ResetCode(err); code != 7 || !remote || !ok {
			t.Fatalf("Close says %v", err)
		}
	}
}

// A subscriber that pauses with a full window goes on when it reads again, on a connection with nothing else
// to say (HZ-33).
func TestPausedReaderResumesOnASilentConnection(t *testing.T) {
	tt := newTestTLS(t)
	s := tt.listen(t, nil)
	client, server := tt.pair(t, s, func(o *DialOptions) { o.StreamWindow = 64 << 10; o.ConnWindow = 1 << 20 })
	data := pattern(1 << 20)
	out, err := server.OpenUniStream(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		out.Write(data)
		out.Close()
	}()
	in, err := client.AcceptUniStream(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	// Nothing moves any more once the window is full; the keep-alives show that the path is alive.
	in.SetReadDeadline(time.Now().Add(20 * time.Second))
	timer := time.NewTimer(500 * time.Millisecond)
	<-timer.C
	start := time.Now()
	got, err := readAll(in)
	if err != nil || !bytes.Equal(got, data) {
		t.Fatalf("%d bytes, %v", len(got), err)
	}
	if took := time.Since(start); took > 2*time.Second {
		t.Fatalf("took %s", took)
	}
}

// A reset ends the reader with its code; a FIN ends it with io.EOF (wire.md 1.4).
func TestResetAndFINAreTold(t *testing.T) {
	tt := newTestTLS(t)
	s := tt.listen(t, nil)
	client, server := tt.pair(t, s, nil)
	for _, code := range []uint64{ResetNone, ResetInterrupted, 1 << 40} {
		out, err := server.OpenUniStream(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := out.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
		in, err := client.AcceptUniStream(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(in, make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
		out.CancelWrite(code)
		_, err = in.Read(make([]byte, 1))
		re, ok := errors.AsType[*ResetError](err)
		if !ok || *re != (ResetError{in.StreamID(), code, true}) {
			t.Fatal(err)
		}
		if _, _, ok := CloseCode(err); ok {
			t.Fatal("a reset reads as a close")
		}
	}
	out, _ := server.OpenUniStream(t.Context())
	out.Close()
	if _, err := out.Write([]byte("x")); !errors.Is(err, ErrClosed) {
		t.Fatalf("write after FIN: %v", err)
	}
	in, err := client.AcceptUniStream(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := in.Read(make([]byte, 1)); err != io.EOF {
		t.Fatal(err)
	}
}

// Deadlines end a read and a write, and the stream works on.
func TestDeadlinesEndAWait(t *testing.T) {
	tt := newTestTLS(t)
	s := tt.listen(t, func(o *ServerOptions) { o.StreamWindow = 64 << 10; o.ConnWindow = 1 << 20 })
	client, server := tt.pair(t, s, nil)
	cs, err := client.OpenStream(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	cs.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
	if _, err := cs.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) || IsClosed(err) {
		t.Fatal(err)
	}
	cs.SetWriteDeadline(time.Now().Add(50 * time.Millisecond))
	n, err := cs.Write(make([]byte, 1<<20))
	if !errors.Is(err, os.ErrDeadlineExceeded) || n == 0 || n == 1<<20 {
		t.Fatal(n, err)
	}
	cs.SetReadDeadline(time.Time{})
	cs.SetWriteDeadline(time.Time{})
	ss, err := server.AcceptStream(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(ss, make([]byte, n)); err != nil {
		t.Fatal(err)
	}
	cs.Write([]byte("y"))
	cs.Close()
	if b, err := readAll(ss); string(b) != "y" || err != nil {
		t.Fatal(b, err)
	}
}

// Used up stream credit is a typed refusal when the caller's time is over, never a wait without end; and no
// cancelled call takes a later one's place (HZ-32).
func TestOpeningAStreamIsBounded(t *testing.T) {
	tt := newTestTLS(t)
	const limit = 4
	s := tt.listen(t, nil)
	client, server := tt.pair(t, s, func(o *DialOptions) { o.MaxUniStreams = limit })
	open := make([]SendStream, limit)
	for i := range open {
		var err error
		if open[i], err = server.OpenUniStream(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
	defer cancel()
	if _, err := server.OpenUniStream(ctx); !errors.Is(err, ErrStreamLimit) || !errors.Is(err, context.DeadlineExceeded) {
		t.Fatal(err)
	}
	if _, err := server.OpenStream(ctx); !errors.Is(err, ErrStreamLimit) {
		t.Fatalf("our client grants no stream for both directions: %v", err)
	}
	for _, o := range open {
		o.CancelWrite(ResetNone)
	}
	var readers sync.WaitGroup
	readCtx, stopReading := context.WithCancel(t.Context())
	readers.Go(func() {
		for {
			in, err := client.AcceptUniStream(readCtx)
			if err != nil {
				return
			}
			in.CancelRead(ResetNone)
		}
	})
	var openers sync.WaitGroup
	for range 8 {
		openers.Go(func() {
			for i := range 60 {
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i%4)*time.Millisecond)
				if o, err := server.OpenUniStream(ctx); err == nil {
					o.CancelWrite(ResetNone)
				}
				cancel()
			}
		})
	}
	openers.Wait()
	ctx, cancel = context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	if _, err := server.OpenUniStream(ctx); err != nil {
		t.Fatal(err)
	}
	stopReading()
	readers.Wait()
}

// What a broker grants: 1024 streams of each kind (wire.md 1.1).
func TestGrantedStreamsAreCounted(t *testing.T) {
	tt := newTestTLS(t)
	s := tt.listen(t, nil)
	client, _ := tt.pair(t, s, nil)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	for range streamsBidiDefault {
		if _, err := client.OpenStream(ctx); err != nil {
			t.Fatal(err)
		}
	}
	for range streamsUniDefault {
		if _, err := client.OpenUniStream(ctx); err != nil {
			t.Fatal(err)
		}
	}
	short, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := client.OpenStream(short); !errors.Is(err, ErrStreamLimit) {
		t.Fatal(err)
	}
	if _, err := client.OpenUniStream(short); !errors.Is(err, ErrStreamLimit) {
		t.Fatal(err)
	}
}

// A body larger than every window arrives, because bodies are read as they come.
func TestFrameLargerThanTheWindowArrives(t *testing.T) {
	tt := newTestTLS(t)
	s := tt.listen(t, func(o *ServerOptions) { o.StreamWindow = 64 << 10; o.ConnWindow = 128 << 10 })
	client, server := tt.pair(t, s, nil)
	body := pattern(3 << 20)
	st, err := client.OpenUniStream(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		st.Write(frame(wire.FlagPublish, body))
		st.Close()
	}()
	in, err := server.AcceptUniStream(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	in.SetReadDeadline(time.Now().Add(20 * time.Second))
	fr := NewFrameReader(in, wire.NewPool(64<<20))
	fr.SetMax(wire.MaxFrameBytes)
	_, b, err := fr.Next()
	if err != nil || !bytes.Equal(b.Bytes(), body) {
		t.Fatal(err)
	}
	b.Release()
	if _, _, err := fr.Next(); err != io.EOF {
		t.Fatal(err)
	}
}
