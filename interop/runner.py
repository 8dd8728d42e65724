"""Runs named cases one after another, each under a time limit, and counts."""

import threading
import time
import traceback

CASES = []


def case(limit=30):
    """Registers a function as a case; it passes when it returns within limit seconds."""
    def register(fn):
        CASES.append((fn.__name__, limit, fn))
        return fn
    return register


def run_all(context, only=None):
    """Prints one line per case and the totals; returns the number of failures."""
    passed = failed = 0
    for name, limit, fn in CASES:
        if only and only not in name:
            continue
        outcome = {}

        def body():
            try:
                outcome["note"] = fn(context)
            except BaseException:
                outcome["error"] = traceback.format_exc()

        began = time.monotonic()
        # A daemon thread: a call that never returns must not keep the run from ending.
        thread = threading.Thread(target=body, name=name, daemon=True)
        thread.start()
        thread.join(limit)
        took = time.monotonic() - began
        if thread.is_alive():
            outcome["error"] = f"no end after {limit} s\n"
        if "error" in outcome:
            failed += 1
            print(f"FAIL {name} ({took:.2f} s)", flush=True)
            print("    " + outcome["error"].rstrip().replace("\n", "\n    "), flush=True)
        else:
            passed += 1
            note = outcome.get("note")
            print(f"PASS {name} ({took:.2f} s)" + (f": {note}" if note else ""), flush=True)
    if passed + failed == 0:
        failed = 1
        print("FAIL no case was run", flush=True)
    print(f"{passed} passed, {failed} failed", flush=True)
    return failed


def equal(got, want, what="value"):
    if got != want:
        raise AssertionError(f"{what}: got {got!r}, want {want!r}")


def raises(error, fn, *args, **kwargs):
    """Calls fn, which must raise error; returns it."""
    try:
        got = fn(*args, **kwargs)
    except error as e:
        return e
    raise AssertionError(f"no {error.__name__}: it returned {got!r}")
