"""Checks the promises of `punctual.py` beyond the library's functions; run by tests.rs, with the tests' library."""

import asyncio
import copy
import decimal
import faulthandler
import math
import pickle
import subprocess
import sys
import tempfile

import punctual

# For a change that never comes.
faulthandler.dump_traceback_later(300, exit=True)


def refused(kind, call, *arguments, **named):
    try:
        call(*arguments, **named)
    except kind as refusal:
        assert str(refusal), kind
    else:
        raise AssertionError(f"{call}{arguments} was not refused")


def interrupting(function):
    """The function, after which a handler of signals comes that reads and fails."""
    def call(*arguments):
        code = function(*arguments)
        setattr(punctual._library, name, function)
        assert store["other"] == b"B" * 64
        refused(punctual.NotFound, store.__getitem__, "none")
        setattr(punctual._library, name, call)
        return code
    name = function.__name__
    setattr(punctual._library, name, call)
    return function


store = punctual.Store(objects=(punctual.Object(key, valid_for=60, history=3) for key in ["t"]))
store["door"], store["other"] = "A" * 64, "B" * 64
original = interrupting(punctual._library.punctual_store_get)
assert store["door"] == b"A" * 64
try:
    store[""]
except punctual.BadKey as refusal:
    assert "511" in str(refusal)
punctual._library.punctual_store_get = original

for value in "12.6", 10**400:
    refused(punctual.BadValue, store.offer, "t", value)
refused(TypeError, store.offer, "t", decimal.Decimal("1.5"))
refused(punctual.Argument, store.offer, "t", 1.0, age=9e8)
store.offer("t", 1.5)
refused(punctual.BadValue, store.history("t").array, "<d")
refused(TypeError, copy.copy, store)
refused(TypeError, pickle.dumps, store.watch("door"))
refused(punctual.Argument, punctual.Store, objects=punctual.Object("t", valid_for=1))
refused(punctual.Argument, store.range, limit=-1)
refused(punctual.Argument, store.range, limit=2**64)
for capacity in 0, -1, 2**64 + 1:
    refused(punctual.Argument, store.watch, "door", capacity=capacity)
refused(punctual.Argument, punctual.Store().watch("a").next, math.nan)
assert punctual.Store().watch("a").next(0) is None
refused(punctual.Argument, store.batch(firm=True).__exit__, None)

batch = store.batch()
try:
    with batch:
        batch.put("undone", "1")
        raise KeyError
except KeyError:
    pass
with batch:
    batch.put("done", "1")
assert store.get("undone") is None and store["done"] == b"1"


async def changes():
    watch = store.watch("door")
    task = asyncio.ensure_future(watch.__anext__())
    while not (watch._listener and not watch._listener.idle.is_set()):
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    # The listener has asked, so `next` waits for its answer.
    assert watch.next(0) is None
    store["door"] = "1"
    assert watch.next().kind == "put"
    # A refusal that is no end leaves the listener at work.
    watch._listener.ready.append(punctual.Busy("busy"))
    refused(punctual.Busy, watch.next)
    task = asyncio.ensure_future(watch.__anext__())
    await asyncio.sleep(0)
    store["door"] = "2"
    assert (await task).kind == "put"
    store.close()
    assert [change async for change in watch] == []


asyncio.run(changes())
assert all(getattr(punctual, name).__doc__ for name in punctual.__all__)

# A thread that still waits at the program's end loses no reading.
program = """
import punctual, sys, threading
store = punctual.Store(sys.argv[1], objects=[punctual.Object("t", valid_for=60)])
watch = store.watch()
threading.Thread(target=lambda: list(watch), daemon=True).start()
store.offer("t", 1.5)
"""
with tempfile.TemporaryDirectory() as folder:
    subprocess.run([sys.executable, "-B", "-c", program, folder], check=True, timeout=120)
    with punctual.Store(folder, objects=[punctual.Object("t", valid_for=60)]) as store:
        assert float(store.read("t")) == 1.5
