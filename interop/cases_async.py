"""The same promises through the asyncio client."""

import asyncio
import os

import felix

from runner import case, equal

T, N = "dev", "default"


def connect(c, broker=None, **kwargs):
    broker = broker or c.broker
    return felix.AsyncClient.connect(broker.quic, tenant_id=T, token=broker.token, ca_file=broker.ca, **kwargs)


async def take(subscription, count, timeout=10.0):
    events = []

    async def read():
        async for e in subscription:
            events.append(e)
            if len(events) == count:
                return

    try:
        await asyncio.wait_for(read(), timeout)
    except asyncio.TimeoutError:
        raise AssertionError(f"got {len(events)} of {count} events in {timeout} s")
    return events


async def raises(error, awaitable):
    try:
        got = await awaitable
    except error as e:
        return e
    raise AssertionError(f"no {error.__name__}: it returned {got!r}")


def acase(limit=30):
    def register(fn):
        def run(c):
            return asyncio.run(fn(c))
        run.__name__ = fn.__name__
        return case(limit)(run)
    return register


@acase()
async def async_publish_acked_unacked_keyed(c):
    async with await connect(c) as client:
        equal(await client.publish(T, N, "a-pub", b"0"), 0, "offset")
        equal(await client.publish(T, N, "a-pub", b"1", ack="per_batch"), 1, "offset")
        equal(await client.publish(T, N, "a-pub", b"2", key=b"k"), 2, "offset of a keyed publish")
        async with await client.subscribe(T, N, "a-pub", start="earliest") as s:
            equal([e.payload for e in await take(s, 3)], [b"0", b"1", b"2"], "payloads")
            equal(await client.publish(T, N, "a-pub", b"3", ack="none"), None, "unacked")
            equal([e.payload for e in await take(s, 1)], [b"3"], "unacked payload")


@acase(60)
async def async_thousand_publishes_at_once(c):
    async with await connect(c) as client:
        offsets = await asyncio.gather(*(client.publish(T, N, "a-many", b"%d" % i) for i in range(1000)))
        equal(sorted(offsets) == list(range(1000)), True, "distinct offsets without a hole")
        async with await client.subscribe(T, N, "a-many", start="earliest") as s:
            events = await take(s, 1000, 20)
        equal({e.offset: int(e.payload) for e in events} == {o: i for i, o in enumerate(offsets)}, True, "payloads")


@acase()
async def async_subscribe_live_earliest_offset(c):
    async with await connect(c) as client:
        for i in range(20):
            await client.publish(T, N, "a-sub", b"%d" % i)
        async with await client.subscribe(T, N, "a-sub") as live, \
                await client.subscribe(T, N, "a-sub", start="earliest") as early, \
                await client.subscribe(T, N, "a-sub", start=15) as later:
            await client.publish(T, N, "a-sub", b"20")
            equal([e.offset for e in await take(live, 1)], [20], "live")
            equal([e.offset for e in await take(early, 21)], list(range(21)), "earliest")
            equal([e.offset for e in await take(later, 6)], list(range(15, 21)), "offset")
        e = await raises(felix.CursorError, client.subscribe(T, N, "a-sub", start=999))
        return str(e)[:100]


@acase()
async def async_sharded_subscription(c):
    c.broker.make_stream("a-sharded", durable=True, shards=3)
    async with await connect(c) as client:
        equal(await client.stream_shards(T, N, "a-sharded"), 3, "shards")
        await asyncio.gather(*(client.publish(T, N, "a-sharded", b"%d" % i, key=b"k%d" % i) for i in range(60)))
        async with await client.subscribe_sharded(T, N, "a-sharded", start="earliest") as s:
            got = set()
            while len(got) < 60:
                r = await asyncio.wait_for(s.next_event(timeout=10), 12)
                if not isinstance(r, felix.ShardRecord):
                    raise AssertionError(f"got {r!r}")
                got.add(int(r.event.payload))
        equal(got, set(range(60)), "payloads")


@acase()
async def async_cache(c):
    async with await connect(c) as client:
        equal(await client.cache_get(T, N, "a-cache", "k"), None, "before")
        await client.cache_put(T, N, "a-cache", "k", b"v", ttl=60)
        equal(await client.cache_get(T, N, "a-cache", "k"), b"v", "value")
        equal(await client.cache_delete(T, N, "a-cache", "k"), b"v", "deleted")
        equal(await client.cache_get(T, N, "a-cache", "k"), None, "after")
        large = os.urandom(300 << 10)
        await client.cache_put(T, N, "a-cache", "large", large)
        equal(await client.cache_get(T, N, "a-cache", "large") == large, True, "large value")


@acase()
async def async_commit_and_state(c):
    op = felix.CommitOp
    async with await connect(c) as client:
        receipt = await client.commit(T, N, b"e", [op.publish("a-entity", b"event"), op.put("a-entity", "k", b"v")])
        s = await client.state_get(T, N, "a-entity", b"e", "k")
        equal((receipt.offset, s.value, s.version, s.as_of), (0, b"v", 0, 0), "state")
        await raises(felix.NotOnOwningShardError, client.commit(T, N, b"e", [op.publish("a-entity", b"x"), op.delete("a-other", "k")]))
        receipts = await asyncio.gather(*(
            client.commit(T, N, b"e", [op.publish("a-entity", b"%d" % i), op.put("a-entity", f"k{i}", b"%d" % i)]) for i in range(100)))
        equal(sorted(r.offset for r in receipts), list(range(1, 101)), "offsets")
        for i in (0, 50, 99):
            s = await client.state_get(T, N, "a-entity", b"e", f"k{i}")
            equal((s.value, s.version, s.as_of), (b"%d" % i, receipts[i].offset, 100), "state")


@acase(60)
async def async_errors(c):
    e = await raises(felix.AuthError, felix.AsyncClient.connect(c.broker.quic, tenant_id=T, token="x", ca_file=c.broker.ca))
    equal(e.code, "unauthenticated", "wrong token")
    async with await connect(c, c.strict) as client:
        equal((await raises(felix.NotFoundError, client.publish(T, N, "a-none", b"x"))).code, "not_found", "publish")
        equal((await raises(felix.NotFoundError, client.subscribe(T, N, "a-none"))).code, "not_found", "subscribe")
        equal((await raises(felix.NotFoundError, client.cache_get(T, N, "a-none", "k"))).code, "not_found", "cache")


@acase(90)
async def async_subscription_resumes_after_kill_and_restart(c):
    broker = c.spare
    async with await connect(c, broker) as client:
        for i in range(5):
            await client.publish(T, N, "a-resume", b"%d" % i)
        async with await client.subscribe(T, N, "a-resume", start="earliest") as s:
            equal([e.offset for e in await take(s, 5)], list(range(5)), "before")
            await asyncio.to_thread(broker.kill)
            await asyncio.to_thread(broker.start)
            async with await connect(c, broker) as writer:
                for i in range(5, 10):
                    equal(await writer.publish(T, N, "a-resume", b"%d" % i), i, "offset after the restart")
            equal([e.offset for e in await take(s, 5, 60)], list(range(5, 10)), "after")
