package client_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"strings"
	"time"

	"github.com/ringcast/ringcast/client"
)

// Publish a record and read it back, against "ringcastd --dev".
func Example() {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	token, err := os.ReadFile("ringcast-data/dev/token")
	if err != nil {
		log.Fatal(err)
	}
	c, err := client.Dial(ctx, "127.0.0.1:5000",
		client.WithTenant("dev"),
		client.WithToken(strings.TrimSpace(string(token))),
		client.WithCAFile("ringcast-data/dev/ca.pem"))
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()

	p, err := c.Publisher(ctx, "orders", client.WithIdempotence())
	if err != nil {
		log.Fatal(err)
	}
	ack, err := p.Publish(ctx, client.Record{Key: []byte("customer-4"), Value: []byte("hello")})
	if err != nil {
		log.Fatal(err)
	}
	if err := p.Close(ctx); err != nil {
		log.Fatal(err)
	}

	sub, err := c.Subscribe(ctx, "orders", client.FromOffset(ack.Offset))
	if err != nil {
		log.Fatal(err)
	}
	defer sub.Close()
	for ev, err := range sub.Events(ctx) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%d %s\n", ev.Offset, ev.Payload)
		break
	}
}

// Move an account only if nobody else has moved it since it was read: the event and the balance that
// follows from it are one record.
func ExampleClient_Commit() {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	c, err := client.Dial(ctx, "127.0.0.1:5000", client.WithTenant("dev"), client.WithToken(os.Getenv("TOKEN")),
		client.WithCAFile("ringcast-data/dev/ca.pem"))
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()

	account := []byte("ann")
	for next := uint64(0); ; {
		balance, err := c.StateGet(ctx, "accounts", account, "ann/balance")
		if err != nil {
			log.Fatal(err)
		}
		changed := append(balance.Value, '+')
		offset, err := c.Commit(ctx, "accounts", account, []byte("paid in"),
			[]client.Change{client.Put("ann/balance", changed)}, client.IfOffset(next))
		if mismatch, ok := errors.AsType[*client.OffsetMismatchError](err); ok {
			next = mismatch.Tail // something was written: look again
			continue
		}
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println("paid in at", offset)
		return
	}
}
