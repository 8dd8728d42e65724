"""What the synchronous client must be able to do with a ringcastd."""

import concurrent.futures
import os
import threading
import time

import felix

from runner import case, equal, raises

T, N = "dev", "default"


def take(subscription, count, timeout=10.0):
    """Reads count events; fewer within the time is a failure."""
    events = []
    deadline = time.monotonic() + timeout
    while len(events) < count:
        left = deadline - time.monotonic()
        event = subscription.next_event(timeout=max(left, 0.01)) if left > 0 else None
        if event is None:
            raise AssertionError(f"got {len(events)} of {count} events in {timeout} s")
        events.append(event)
    return events


def nothing_more(subscription, wait=0.3):
    event = subscription.next_event(timeout=wait)
    if event is not None:
        raise AssertionError(f"an event too many: offset {event.offset}, {event.payload[:40]!r}")


@case()
def connect_with_ca_file_and_token(c):
    with felix.Client(c.broker.quic, tenant_id=T, token=c.broker.token, ca_file=c.broker.ca) as client:
        equal(client.endpoints(), [c.broker.quic], "endpoints")


@case()
def connect_with_alpn_offered(c):
    with felix.Client(c.broker.quic, tenant_id=T, token=c.broker.token, ca_file=c.broker.ca, offer_alpn=True) as client:
        client.publish(T, N, "alpn", b"x")


@case()
def connect_without_the_ca_file_is_refused(c):
    e = raises(felix.ConnectionError, felix.Client, c.broker.quic, tenant_id=T, token=c.broker.token)
    return str(e)[:100]


@case()
def connect_with_token_provider(c):
    calls = []

    def provide():
        calls.append(1)
        return c.broker.token

    with felix.Client(c.broker.quic, tenant_id=T, token_provider=provide, ca_file=c.broker.ca) as client:
        client.publish(T, N, "provider", b"x")
    if not calls:
        raise AssertionError("the provider was never asked")


@case()
def publish_acked_returns_offsets_in_order(c):
    with c.client() as client:
        equal([client.publish(T, N, "acked", b"m%d" % i) for i in range(5)], [0, 1, 2, 3, 4], "offsets")


@case()
def publish_acked_per_batch(c):
    with c.client() as client:
        equal(client.publish(T, N, "per-batch", b"a", ack="per_batch"), 0, "offset")
        equal(client.publish(T, N, "per-batch", b"b", ack="per_batch"), 1, "offset")


@case()
def publish_at_least_once(c):
    with c.client() as client:
        equal(client.publish(T, N, "alo", b"a", at_least_once=True), 0, "offset")


@case()
def publish_unacked_arrives(c):
    with c.client() as client:
        client.publish(T, N, "unacked", b"first")  # creates the stream
        with client.subscribe(T, N, "unacked", start="earliest") as s:
            take(s, 1)
            for i in range(20):
                equal(client.publish(T, N, "unacked", b"u%d" % i, ack="none"), None, "answer")
            equal([e.payload for e in take(s, 20)], [b"u%d" % i for i in range(20)], "payloads")


@case()
def publish_to_memory_stream_has_no_offset(c):
    c.broker.make_stream("memory", durable=False)
    with c.client() as client:
        with client.subscribe(T, N, "memory") as s:
            equal(client.publish(T, N, "memory", b"x"), None, "offset")
            event = take(s, 1)[0]
            equal((event.payload, event.offset), (b"x", None), "event")


@case()
def payloads_of_all_sizes_come_back_unchanged(c):
    payloads = [b"", b"\x00", bytes(range(256)), os.urandom(64 << 10), os.urandom(1 << 20), os.urandom(4 << 20)]
    with c.client() as client:
        for p in payloads:
            client.publish(T, N, "sizes", p)
        with client.subscribe(T, N, "sizes", start="earliest") as s:
            for i, e in enumerate(take(s, len(payloads), 20)):
                equal(e.offset, i, "offset")
                equal(len(e.payload), len(payloads[i]), "length")
                equal(e.payload == payloads[i], True, "same bytes")


@case()
def publish_keyed_keeps_a_key_on_one_shard(c):
    c.broker.make_stream("sharded", durable=True, shards=4)
    with c.client() as client:
        equal(client.stream_shards(T, N, "sharded"), 4, "shards")
        for round in range(5):
            for key in range(16):
                client.publish(T, N, "sharded", b"%d:%d" % (key, round), key=b"key-%d" % key)
        seen, shard_of = {}, {}
        with client.subscribe_sharded(T, N, "sharded", start="earliest") as s:
            equal(s.shards, 4, "shards")
            for _ in range(80):
                r = s.next_event(timeout=10)
                if not isinstance(r, felix.ShardRecord):
                    raise AssertionError(f"got {r!r}")
                key, round = r.event.payload.split(b":")
                equal(shard_of.setdefault(key, r.shard), r.shard, "shard of a key")
                seen.setdefault(key, []).append(int(round))
        equal(sorted(seen) == sorted(b"%d" % k for k in range(16)), True, "all keys")
        for key, rounds in seen.items():
            equal(rounds, [0, 1, 2, 3, 4], f"order within {key}")
        if len(set(shard_of.values())) < 3:
            raise AssertionError(f"16 keys on {len(set(shard_of.values()))} shards")
        return f"shards used: {sorted(set(shard_of.values()))}"


@case()
def empty_key_is_a_key(c):
    with c.client() as client:
        equal(client.publish(T, N, "empty-key", b"x", key=b""), 0, "offset")


@case()
def publish_from_many_threads_gives_distinct_offsets(c):
    with c.client() as client:
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            offsets = list(pool.map(lambda i: client.publish(T, N, "threads", b"%d" % i), range(400)))
        equal(sorted(offsets), list(range(400)), "offsets")
        with client.subscribe(T, N, "threads", start="earliest") as s:
            by_offset = {e.offset: int(e.payload) for e in take(s, 400)}
        equal(by_offset == {o: i for i, o in enumerate(offsets)}, True, "each payload at its offset")


@case()
def subscribe_live_sees_only_what_comes_after(c):
    with c.client() as client:
        client.publish(T, N, "live", b"before")
        with client.subscribe(T, N, "live") as s:
            for i in range(10):
                client.publish(T, N, "live", b"after%d" % i)
            events = take(s, 10)
            equal([e.payload for e in events], [b"after%d" % i for i in range(10)], "payloads")
            equal([e.offset for e in events], list(range(1, 11)), "offsets")
            equal((events[0].tenant_id, events[0].namespace, events[0].stream), (T, N, "live"), "names")
            nothing_more(s)


@case()
def subscribe_earliest_replays_and_goes_on_live(c):
    with c.client() as client:
        for i in range(50):
            client.publish(T, N, "early", b"%d" % i)
        with client.subscribe(T, N, "early", start="earliest") as s:
            equal([e.offset for e in take(s, 50)], list(range(50)), "history")
            for i in range(50, 60):
                client.publish(T, N, "early", b"%d" % i)
            events = take(s, 10)
            equal([(e.offset, e.payload) for e in events], [(i, b"%d" % i) for i in range(50, 60)], "live")
            nothing_more(s)


@case()
def subscribe_from_an_offset(c):
    with c.client() as client:
        for i in range(30):
            client.publish(T, N, "offset", b"%d" % i)
        with client.subscribe(T, N, "offset", start=17) as s:
            equal([(e.offset, e.payload) for e in take(s, 13)], [(i, b"%d" % i) for i in range(17, 30)], "events")
            nothing_more(s)


@case()
def subscribe_at_the_tail_waits(c):
    with c.client() as client:
        client.publish(T, N, "tail", b"0")
        with client.subscribe(T, N, "tail", start=1) as s:
            nothing_more(s)
            client.publish(T, N, "tail", b"1")
            equal(take(s, 1)[0].offset, 1, "offset")


@case()
def subscribe_beyond_the_tail_is_a_cursor_error(c):
    with c.client() as client:
        client.publish(T, N, "future", b"x")
        e = raises(felix.CursorError, client.subscribe, T, N, "future", start=1000)
        return str(e)[:100]


@case()
def trimmed_records_are_a_cursor_error_with_the_oldest_offset(c):
    c.strict.make_stream("trimmed", durable=True, fsync="none")
    with c.client(c.strict) as client:
        for _ in range(40):
            client.publish(T, N, "trimmed", b"x" * 8192)
        c.strict.make_stream("trimmed", durable=True, fsync="none", retention_bytes=100_000)
        status, info = c.strict.admin("GET", "/v1/tenants/dev/namespaces/default/streams/trimmed")
        base = info["shard_info"][0]["base"]
        equal((status, 0 < base < 40), (200, True), "segments went")
        e = raises(felix.CursorError, client.subscribe, T, N, "trimmed", start=base - 1)
        equal(str(base) in str(e), True, f"the oldest offset is in {e}")
        for start in ("earliest", base):
            with client.subscribe(T, N, "trimmed", start=start) as s:
                got = [e.offset for e in take(s, 40 - base)]
                equal(got, list(range(base, 40)), f"from {start}")
        return str(e)[:100]


@case()
def join_while_a_publisher_runs_has_no_gap_and_no_duplicate(c):
    stop = threading.Event()
    with c.client() as client, c.client() as writer:
        writer.publish(T, N, "join", b"0")
        count = [1]

        def write():
            while not stop.is_set():
                writer.publish(T, N, "join", b"%d" % count[0])
                count[0] += 1

        thread = threading.Thread(target=write)
        thread.start()
        try:
            for _ in range(5):
                with client.subscribe(T, N, "join", start="earliest") as s:
                    want = count[0] + 20
                    for i, e in enumerate(take(s, want, 20)):
                        equal((e.offset, e.payload), (i, b"%d" % i), "event")
        finally:
            stop.set()
            thread.join()
        return f"{count[0]} records"


@case(60)
def replay_of_5000_records(c):
    with c.client() as client:
        with concurrent.futures.ThreadPoolExecutor(16) as pool:
            list(pool.map(lambda i: client.publish(T, N, "long", b"%d" % i), range(5000)))
        began = time.monotonic()
        with client.subscribe(T, N, "long", start="earliest") as s:
            events = take(s, 5000, 30)
        took = time.monotonic() - began
        equal([e.offset for e in events] == list(range(5000)), True, "offsets in order")
        equal(sorted(int(e.payload) for e in events) == list(range(5000)), True, "all payloads once")
        return f"replayed in {took:.2f} s"


@case()
def two_subscribers_see_the_same(c):
    with c.client() as a, c.client() as b:
        a.publish(T, N, "pair", b"first")
        with a.subscribe(T, N, "pair", start="earliest") as x, b.subscribe(T, N, "pair", start="earliest") as y:
            for i in range(100):
                a.publish(T, N, "pair", b"%d" % i)
            seen = [[(e.offset, e.payload) for e in take(s, 101)] for s in (x, y)]
            equal(seen[0] == seen[1], True, "same records")


@case()
def closing_one_subscription_leaves_the_other(c):
    with c.client() as client:
        client.publish(T, N, "close", b"0")
        with client.subscribe(T, N, "close") as keep:
            gone = client.subscribe(T, N, "close")
            gone.close()
            client.publish(T, N, "close", b"1")
            equal(take(keep, 1)[0].payload, b"1", "payload")


@case()
def cache_put_get_delete(c):
    with c.client() as client:
        equal(client.cache_get(T, N, "cache", "k"), None, "before")
        client.cache_put(T, N, "cache", "k", b"v1")
        equal(client.cache_get(T, N, "cache", "k"), b"v1", "after put")
        client.cache_put(T, N, "cache", "k", b"v2")
        equal(client.cache_get(T, N, "cache", "k"), b"v2", "after overwrite")
        client.cache_put(T, N, "cache", "empty", b"")
        equal(client.cache_get(T, N, "cache", "empty"), b"", "empty value")
        equal(client.cache_delete(T, N, "cache", "k"), b"v2", "deleted value")
        equal(client.cache_get(T, N, "cache", "k"), None, "after delete")
        equal(client.cache_delete(T, N, "cache", "k"), None, "second delete")


@case()
def cache_entries_expire(c):
    with c.client() as client:
        client.cache_put(T, N, "cache", "ttl", b"v", ttl=0.4)
        equal(client.cache_get(T, N, "cache", "ttl"), b"v", "before")
        deadline = time.monotonic() + 5
        while client.cache_get(T, N, "cache", "ttl") is not None:
            if time.monotonic() > deadline:
                raise AssertionError("still there after 5 s")
            time.sleep(0.02)


@case()
def cache_holds_many_keys_and_large_values(c):
    large = os.urandom(1 << 20)
    with c.client() as client:
        client.cache_put(T, N, "cache", "large", large)
        equal(client.cache_get(T, N, "cache", "large") == large, True, "1 MiB value")
        with concurrent.futures.ThreadPoolExecutor(16) as pool:
            list(pool.map(lambda i: client.cache_put(T, N, "cache", f"key-{i}", b"%d" % i), range(500)))
            values = list(pool.map(lambda i: client.cache_get(T, N, "cache", f"key-{i}"), range(500)))
        equal(values == [b"%d" % i for i in range(500)], True, "values")


def state(client, stream, entity, key):
    s = client.state_get(T, N, stream, entity, key)
    return s.value, s.version, s.as_of


@case()
def commit_writes_an_event_and_its_state(c):
    op = felix.CommitOp
    with c.client() as client:
        with client.subscribe(T, N, "accounts") as live:
            equal(client.publish(T, N, "accounts", b"before"), 0, "offset")
            equal(state(client, "accounts", b"ann", "balance"), (None, None, None), "no commit yet")
            ops = [op.put("accounts", "balance", b"12"), op.put("accounts", "hold", b""), op.publish("accounts", b"paid"),
                   op.put("accounts", "gone", b"x"), op.delete("accounts", "gone")]
            equal(client.commit(T, N, b"ann", ops).offset, 1, "commit")
            equal(state(client, "accounts", b"ann", "balance"), (b"12", 1, 1), "value, version, as of")
            equal(state(client, "accounts", b"ann", "hold"), (b"", 1, 1), "the empty value")
            equal(state(client, "accounts", b"ann", "gone"), (None, None, 1), "put and deleted")
            equal(client.commit(T, N, b"ann", [op.enqueue("accounts", b"taken"), op.put("accounts", "balance", b"0")]).offset, 2, "enqueue")
            equal(client.publish(T, N, "accounts", b"after"), 3, "offset")
            want = [(0, b"before"), (1, b"paid"), (2, b"taken"), (3, b"after")]
            equal([(e.offset, e.payload) for e in take(live, 4)], want, "live")
        with client.subscribe(T, N, "accounts", start="earliest") as s:
            equal([(e.offset, e.payload) for e in take(s, 4)], want, "replayed")
            nothing_more(s)
        large = os.urandom(1 << 20)
        at = client.commit(T, N, b"", [op.publish("accounts", b"large"), op.put("accounts", "large", large)]).offset
        equal(state(client, "accounts", b"", "large") == (large, at, at), True, "a large value")


@case()
def commit_goes_to_the_shard_of_its_entity(c):
    c.broker.make_stream("entities", durable=True, shards=4)
    op = felix.CommitOp
    with c.client() as client:
        offsets = {}
        for n in range(40):
            entity = b"entity-%d" % n
            offsets[entity] = client.commit(T, N, entity, [op.publish("entities", entity), op.put("entities", entity.decode(), entity)]).offset
        for entity, at in offsets.items():
            equal(state(client, "entities", entity, entity.decode())[:2], (entity, at), "state")
        shard_of = {}
        with client.subscribe_sharded(T, N, "entities", start="earliest") as s:
            for _ in range(40):
                r = s.next_event(timeout=10)
                equal(r.event.offset, offsets[r.event.payload], "offset")
                shard_of[r.event.payload] = r.shard
        # A publish with the entity as its key lands on the same shard.
        tails = {shard: 1 + max(offsets[e] for e in offsets if shard_of[e] == shard) for shard in set(shard_of.values())}
        for entity in (b"entity-0", b"entity-1", b"entity-2"):
            equal(client.publish(T, N, "entities", b"x", key=entity), tails[shard_of[entity]], "offset of a keyed publish")
            tails[shard_of[entity]] += 1
        return f"shards used: {sorted(tails)}"


@case()
def commit_that_cannot_be_whole_is_refused(c):
    op = felix.CommitOp
    c.broker.make_stream("commit-memory", durable=False)
    with c.client() as client:
        client.publish(T, N, "one-log", b"first")
        e = raises(felix.NotOnOwningShardError, client.commit, T, N, b"e", [op.publish("one-log", b"x"), op.put("other-log", "k", b"v")])
        equal((e.index, e.stream, e.owner), (1, "other-log", "one-log"), "the second stream is named")
        equal(raises(felix.EventCountError, client.commit, T, N, b"e", [op.put("one-log", "k", b"v")]).count, 0, "events")
        equal(raises(felix.EventCountError, client.commit, T, N, b"e", [op.publish("one-log", b"x")] * 2).count, 2, "events")
        e = raises(felix.FelixError, client.commit, T, N, b"e", [op.publish("commit-memory", b"x")])
        equal(e.code, "invalid_request", "a stream in memory")
        e = raises(felix.FelixError, client.state_get, T, N, "commit-memory", b"e", "k")
        equal(e.code, "invalid_request", "its state")
        equal(client.publish(T, N, "one-log", b"second"), 1, "nothing was written in between")
        equal(state(client, "one-log", b"e", "k"), (None, None, None), "state")
    reader = c.mint("stream.subscribe:stream:dev/*", sub="reader")
    writer = c.mint("stream.publish:stream:dev/*", sub="writer")
    with felix.Client(c.broker.quic, tenant_id=T, token=reader, ca_file=c.broker.ca) as client:
        # The protocol names publish_error here, and 0.6.2 does not know it as an answer: any FelixError.
        raises(felix.FelixError, client.commit, T, N, b"e", [op.publish("one-log", b"x")])
        equal(state(client, "one-log", b"e", "k"), (None, None, None), "what it may read")
    with felix.Client(c.broker.quic, tenant_id=T, token=writer, ca_file=c.broker.ca) as client:
        equal(client.commit(T, N, b"e", [op.publish("one-log", b"x"), op.put("one-log", "k", b"v")]).offset, 2, "what it may write")
        raises(felix.FelixError, client.state_get, T, N, "one-log", b"e", "k")
    with c.client(c.strict) as client:
        e = raises(felix.NotFoundError, client.commit, T, N, b"e", [op.publish("nowhere", b"x")])
        equal(e.code, "not_found", "unknown stream")


@case(90)
def commits_and_their_state_survive_kill(c):
    broker, op = c.spare, felix.CommitOp
    acked = {}
    with c.client(broker) as client:
        done = threading.Event()

        def write():
            i = 0
            while not done.is_set():
                ops = [op.publish("entity", b"%d" % i), op.put("entity", "newest", b"%d" % i), op.put("entity", f"key-{i}", b"v")]
                try:
                    acked[client.commit(T, N, b"e", ops).offset] = i
                except felix.FelixError:
                    return
                i += 1

        thread = threading.Thread(target=write)
        thread.start()
        time.sleep(0.7)
        broker.kill()
        done.set()
        thread.join(40)
    broker.start()
    with c.client(broker) as client:
        with client.subscribe(T, N, "entity", start="earliest") as s:
            events = take(s, len(acked), 20)
            while (event := s.next_event(timeout=0.5)) is not None:
                events.append(event)
        equal([e.offset for e in events] == list(range(len(events))), True, "offsets without a hole")
        equal(all(int(events[at].payload) == i for at, i in acked.items()), True, "answered commits")
        last = events[-1]
        equal(state(client, "entity", b"e", "newest"), (last.payload, last.offset, last.offset), "state is that of the last event")
        for e in events[::max(1, len(events) // 20)]:
            equal(state(client, "entity", b"e", f"key-{int(e.payload)}")[:2], (b"v", e.offset), "state of an event")
        equal(client.commit(T, N, b"e", [op.publish("entity", b"x")]).offset, len(events), "the next offset")
    return f"{len(acked)} answered commits"


@case()
def wrong_token_is_an_auth_error(c):
    broken = c.broker.token[:-6] + ("AAAAAA" if not c.broker.token.endswith("AAAAAA") else "BBBBBB")
    for token in (broken, "not a token"):
        e = raises(felix.AuthError, felix.Client, c.broker.quic, tenant_id=T, token=token, ca_file=c.broker.ca)
        equal((e.code, e.retry), ("unauthenticated", "fatal"), "code and class")


@case()
def token_of_another_tenant_is_an_auth_error(c):
    e = raises(felix.AuthError, felix.Client, c.broker.quic, tenant_id="other", token=c.broker.token, ca_file=c.broker.ca)
    equal(e.code, "unauthenticated", "code")


@case()
def expired_token_is_an_auth_error(c):
    token = c.mint("stream.publish:stream:dev/*", ttl=-600)
    e = raises(felix.AuthError, felix.Client, c.broker.quic, tenant_id=T, token=token, ca_file=c.broker.ca)
    equal(e.code, "unauthenticated", "code")


@case()
def missing_permission_is_forbidden_and_hurts_nobody_else(c):
    token = c.mint("stream.subscribe:stream:dev/default/perm", "cache.read:cache:dev/default/cache")
    with c.client() as full:
        full.publish(T, N, "perm", b"x")
        with felix.Client(c.broker.quic, tenant_id=T, token=token, ca_file=c.broker.ca) as client:
            equal(raises(felix.AuthError, client.publish, T, N, "perm", b"y").code, "forbidden", "publish")
            equal(raises(felix.AuthError, client.subscribe, T, N, "other").code, "forbidden", "subscribe elsewhere")
            # Each of the 32 cache streams must survive its refusal (wire.md 8.3 item 7).
            for _ in range(40):
                equal(raises(felix.AuthError, client.cache_put, T, N, "cache", "k", b"v").code, "forbidden", "cache put")
            client.cache_get(T, N, "cache", "k")
            with client.subscribe(T, N, "perm", start="earliest") as s:
                equal(take(s, 1)[0].payload, b"x", "what it may read")
        equal(full.publish(T, N, "perm", b"z"), 1, "the neighbour goes on")


@case()
def second_identity_on_one_connection(c):
    other = c.mint("stream.subscribe:stream:dev/*", sub="second")
    with c.client() as client:
        client.publish(T, N, "identity", b"x")
        second = client.with_identity(T, other)
        with second.subscribe(T, N, "identity", start="earliest") as s:
            equal(take(s, 1)[0].payload, b"x", "payload")
        equal(raises(felix.AuthError, second.publish, T, N, "identity", b"y").code, "forbidden", "publish")


@case(60)
def unknown_stream_is_not_found_without_auto_create(c):
    with c.client(c.strict) as client:
        e = raises(felix.NotFoundError, client.publish, T, N, "nowhere", b"x")
        equal(e.code, "not_found", "publish")
        began = time.monotonic()
        e = raises(felix.NotFoundError, client.subscribe, T, N, "nowhere")
        equal(e.code, "not_found", "subscribe")
        took = time.monotonic() - began
        equal(raises(felix.NotFoundError, client.cache_put, T, N, "nowhere", "k", b"v").code, "not_found", "cache put")
        equal(raises(felix.NotFoundError, client.cache_get, T, N, "nowhere", "k").code, "not_found", "cache get")
        c.strict.make_stream("somewhere", durable=True)
        equal(client.publish(T, N, "somewhere", b"x"), 0, "a stream that exists")
        return f"subscribe gave up after {took:.1f} s"


@case()
def what_this_version_does_not_serve_fails_locally(c):
    with c.client() as client:
        client.publish(T, N, "groups", b"x")
        seen = []
        for name, fn in (
            ("group_poll", lambda: client.group_poll(T, N, "groups", 0, "g", wait=0.1)),
            ("counter_add", lambda: client.counter_add(T, N, "counters", "k", 1)),
            ("watch_cache", lambda: client.watch_cache(T, N, "cache", felix.CacheWatchFilter.key("k"))),
        ):
            e = raises(felix.FelixError, fn)
            seen.append((name, type(e).__name__, e.code, str(e)))
        c.refused = seen
        equal(client.publish(T, N, "groups", b"y"), 1, "the client still works")
        return "; ".join(f"{n}: {t}({m})" for n, t, _, m in seen)


@case(90)
def subscription_resumes_after_kill_and_restart(c):
    broker = c.spare
    with c.client(broker) as client:
        for i in range(10):
            client.publish(T, N, "resume", b"%d" % i)
        with client.subscribe(T, N, "resume", start="earliest") as s:
            equal([e.offset for e in take(s, 10)], list(range(10)), "before")
            broker.kill()
            broker.start()
            with c.client(broker) as writer:
                for i in range(10, 20):
                    equal(writer.publish(T, N, "resume", b"%d" % i), i, "offset after the restart")
            began = time.monotonic()
            events = take(s, 10, 60)
            equal([(e.offset, e.payload) for e in events], [(i, b"%d" % i) for i in range(10, 20)], "after")
            nothing_more(s)
            return f"resumed within {time.monotonic() - began:.1f} s"


@case(90)
def acked_records_survive_kill(c):
    broker = c.spare
    acked = {}
    with c.client(broker) as client:
        done = threading.Event()

        def write():
            i = 0
            while not done.is_set():
                try:
                    acked[client.publish(T, N, "survive", b"%d" % i)] = i
                except felix.FelixError:
                    return
                i += 1

        thread = threading.Thread(target=write)
        thread.start()
        time.sleep(0.7)
        broker.kill()
        done.set()
        thread.join(40)
    broker.start()
    with c.client(broker) as client:
        with client.subscribe(T, N, "survive", start="earliest") as s:
            events = take(s, len(acked), 20)
        equal([e.offset for e in events] == list(range(len(acked))), True, "offsets without a hole")
        for e in events:
            equal(int(e.payload), acked[e.offset], "payload")
    return f"{len(acked)} acked records"


@case(90)
def publisher_works_again_after_restart(c):
    broker = c.spare
    with c.client(broker) as client:
        first = client.publish(T, N, "again", b"a")
        broker.kill()
        broker.start()
        deadline = time.monotonic() + 60
        while True:
            try:
                equal(client.publish(T, N, "again", b"b", at_least_once=True), first + 1, "offset")
                return
            except felix.FelixError as e:
                if time.monotonic() > deadline:
                    raise AssertionError(f"still refused after 60 s: {e}")


@case(60)
def cache_is_empty_after_restart_and_says_so(c):
    """Caches are in memory in this version: a restart empties them, and a get answers none."""
    broker = c.spare
    with c.client(broker) as client:
        client.cache_put(T, N, "volatile", "k", b"v")
        equal(client.cache_get(T, N, "volatile", "k"), b"v", "before")
    broker.kill()
    broker.start()
    with c.client(broker) as client:
        equal(client.cache_get(T, N, "volatile", "k"), None, "after")
