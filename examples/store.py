"""A store in Python: records, one commit, readings with their age, an array, and changes in `async for`.

    cargo build --release -p punctual-c
    PUNCTUAL_LIBRARY=target/release/libpunctual.so PYTHONPATH=include python3 examples/store.py
"""

import asyncio
import tempfile

import punctual

battery = punctual.Object("battery", valid_for=60, history=3)


async def changes(watch):
    async for change in watch:
        print(f"{change.key.decode()} was {change.kind}")
        if change.key == b"room/2":
            return


with tempfile.TemporaryDirectory() as folder, punctual.Store(folder, objects=[battery]) as store:
    store["door"] = "open"
    watch = store.watch("room/", prefix=True)
    with store.batch(due_in=0.005) as batch:  # all or nothing
        batch.expect("door", "open")
        batch.put("room/1", "warm", life=60)
        batch.put("room/2", "cold")
    print([key for key, value in store.range("room/1", "room/3")])
    try:
        store["battery"] = "full"
    except punctual.WrongKind as refusal:
        print("refused:", refusal)
    for volts in 12.6, 12.5, 12.4:
        store.offer("battery", volts)
    reading = store.read("battery")
    print(float(reading), "V", "fresh" if reading.fresh else "stale", f"of {store.figures()['objects']} objects")
    print(store.history("battery").array().tolist())  # numpy.asarray takes it without a copy
    asyncio.run(changes(watch))
