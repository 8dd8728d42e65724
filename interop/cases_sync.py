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
            ("commit", lambda: client.commit(T, N, b"e", [felix.CommitOp.publish("groups", b"x")])),
            ("state_get", lambda: client.state_get(T, N, "groups", b"e", "k")),
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
