"""Interop run: the official Python client against the ringcastd built from this tree.

    python main.py --bin DIR [--only WORD]

Prints PASS or FAIL per case, what the client said about itself on the wire, and the totals.
Ends with 1 when a case failed.
"""

import argparse
import base64
import importlib.metadata
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time

import felix
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

import cases_async  # noqa: F401  (registers its cases)
import cases_sync  # noqa: F401
from broker import Broker
from runner import CASES, run_all


class Context:
    """What cases get: broker (shared), strict (AUTO_CREATE off), spare (may be killed)."""

    def __init__(self, bindir, tmp):
        daemon = os.path.join(bindir, "ringcastd")
        self.broker = Broker(daemon, os.path.join(tmp, "shared"))
        self.strict = Broker(daemon, os.path.join(tmp, "strict"), "--auto-create=false",
                             "--durable-segment-bytes=64KiB")
        self.spare = Broker(daemon, os.path.join(tmp, "spare"))
        self.refused = []

    def brokers(self):
        return (self.broker, self.strict, self.spare)

    def client(self, broker=None):
        broker = broker or self.broker
        return felix.Client(broker.quic, tenant_id="dev", token=broker.token, ca_file=broker.ca)

    def mint(self, *perms, sub="interop", ttl=600):
        """A token made with the shared broker's signing key, here and not by ringcast."""
        with open(self.broker.signing_key) as f:
            key = json.load(f)
        now = int(time.time())
        head = {"typ": "JWT", "alg": "EdDSA", "kid": key["kid"]}
        body = {"iss": "felix-auth", "aud": "felix-broker", "sub": sub, "tid": "dev",
                "iat": now - 3600, "exp": now + ttl, "perms": list(perms)}
        signed = b".".join(base64url(json.dumps(part).encode()) for part in (head, body))
        seed = base64.urlsafe_b64decode(key["d"] + "=")
        signature = Ed25519PrivateKey.from_private_bytes(seed).sign(signed)
        return (signed + b"." + base64url(signature)).decode()


def base64url(b):
    return base64.urlsafe_b64encode(b).rstrip(b"=")


def seen_on_the_wire(bindir, broker, tmp):
    """What this client says of itself: TLS parameters and the auth frame, read by interop/tap."""
    addr_file = os.path.join(tmp, "tap-addr")
    tap = subprocess.Popen([os.path.join(bindir, "tap"), os.path.dirname(broker.ca), addr_file],
                           stdout=subprocess.PIPE, text=True)
    try:
        deadline = time.monotonic() + 10
        while not os.path.exists(addr_file):
            if time.monotonic() > deadline or tap.poll() is not None:
                raise RuntimeError("interop/tap does not listen")
            time.sleep(0.02)
        with open(addr_file) as f:
            addr = f.read()
        try:
            felix.Client(addr, tenant_id="dev", token=broker.token, ca_file=broker.ca)
        except felix.FelixError:
            pass  # tap answers nothing
        return tap.communicate(timeout=30)[0].strip()
    finally:
        if tap.poll() is None:
            tap.kill()
            tap.wait()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bin", required=True)
    parser.add_argument("--only", default=None)
    args = parser.parse_args()
    # Cases of the killing kind last: a broker that does not come back fails only them.
    CASES.sort(key=lambda c: "restart" in c[0] or "kill" in c[0])
    version = importlib.metadata.version("felix-client")
    print(f"felix-client {version} on Python {sys.version.split()[0]}", flush=True)
    tmp = tempfile.mkdtemp(prefix="ringcast-interop-")
    context = Context(os.path.abspath(args.bin), tmp)
    failed = 1
    try:
        for b in context.brokers():
            b.start()
        failed = run_all(context, args.only)
        seen = seen_on_the_wire(os.path.abspath(args.bin), context.broker, tmp)
        print("seen on the wire:", seen)
        if '"client_features"' not in seen:
            print("FAIL the client offered no features")
            failed += 1
        if failed:
            for b in context.brokers():
                print(f"--- end of {b.log_path}\n{b.tail(15)}")
    finally:
        for b in context.brokers():
            try:
                code = b.stop()
                if code:
                    print(f"FAIL {b.log_path}: the broker ended with {code}\n{b.tail()}")
                    failed += 1
            except RuntimeError as e:
                print("FAIL", e)
                failed += 1
        if failed:
            print("data and logs are kept in", tmp)
        else:
            shutil.rmtree(tmp, ignore_errors=True)
    sys.stdout.flush()
    os._exit(1 if failed else 0)  # a case that hangs holds a thread of the client


if __name__ == "__main__":
    main()
