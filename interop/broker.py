"""Starts, kills and restarts a ringcastd on loopback for the interop run."""

import json
import os
import signal
import subprocess
import time
import urllib.error
import urllib.request


class Broker:
    """One `ringcastd --dev` with a data directory of its own. Ports are free ones, kept over restarts."""

    def __init__(self, binary, data, *flags):
        self.binary, self.data, self.flags = binary, data, flags
        self.quic = self.http = "127.0.0.1:0"
        self.process = None
        self.log_path = data + ".log"

    def start(self):
        addr_file = os.path.join(self.data, "dev", "addr.json")
        env = {k: v for k, v in os.environ.items() if not k.startswith("RINGCAST_")}
        log = open(self.log_path, "ab")
        self.process = subprocess.Popen(
            [self.binary, "--dev", "--data-dir", self.data, "--quic-bind", self.quic, "--http-bind", self.http,
             "--log-level", "debug", *self.flags],
            stdout=subprocess.DEVNULL, stderr=log, stdin=subprocess.DEVNULL, env=env)
        log.close()
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                raise RuntimeError(f"the broker ended with {self.process.returncode}:\n{self.tail()}")
            try:
                with open(addr_file) as f:
                    addr = json.load(f)
                if addr["pid"] == self.process.pid:
                    self.quic, self.http = addr["quic"], addr["http"]
                    return self
            except (FileNotFoundError, ValueError):
                pass
            time.sleep(0.02)
        raise RuntimeError("the broker was not ready within 30 s:\n" + self.tail())

    def kill(self):
        """SIGKILL: nothing is flushed that was not flushed already."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def stop(self):
        if self.process is None or self.process.poll() is not None:
            return 0
        self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(timeout=40)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise RuntimeError("the broker did not stop within 40 s:\n" + self.tail())

    def tail(self, lines=25):
        try:
            with open(self.log_path, errors="replace") as f:
                return "".join(f.readlines()[-lines:])
        except FileNotFoundError:
            return "(no log)"

    def log(self):
        with open(self.log_path, errors="replace") as f:
            return f.read()

    @property
    def ca(self):
        return os.path.join(self.data, "dev", "ca.pem")

    @property
    def token(self):
        with open(os.path.join(self.data, "dev", "token")) as f:
            return f.read().strip()

    @property
    def signing_key(self):
        return os.path.join(self.data, "dev", "signing.jwk")

    def admin(self, method, path, body=None):
        """One call of the admin API; returns (status, decoded answer)."""
        request = urllib.request.Request(
            "http://" + self.http + path, method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Authorization": "Bearer " + self.token, "Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=10) as r:
                return r.status, json.loads(r.read() or b"null")
        except urllib.error.HTTPError as e:
            return e.code, json.loads(e.read() or b"null")

    def make_stream(self, stream, **definition):
        status, answer = self.admin("PUT", f"/v1/tenants/dev/namespaces/default/streams/{stream}", definition)
        if status not in (200, 201):
            raise RuntimeError(f"PUT stream {stream}: {status} {answer}")

    def make_cache(self, cache, **definition):
        status, answer = self.admin("PUT", f"/v1/tenants/dev/namespaces/default/caches/{cache}", definition)
        if status not in (200, 201):
            raise RuntimeError(f"PUT cache {cache}: {status} {answer}")
