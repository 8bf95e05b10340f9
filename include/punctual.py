"""The store of punctual: records and values of sensors, with deadlines, ages and watches. On Linux, Python 3.8 or later.

    import punctual

    with punctual.Store("robot.store", objects=[punctual.Object("battery", valid_for=0.2)]) as store:
        store["door"] = "open"
        store.offer("battery", 12.6)
        reading = store.read("battery")
        print(float(reading), reading.age, reading.fresh)

Keys are bytes or str; values are bytes, str, or any buffer; what is read is bytes. Times are in seconds. Any thread may
call any method: other Python threads run meanwhile. docs/guide/store.md says what the store promises. The library is
libpunctual.so: beside this file, where PUNCTUAL_LIBRARY says, or where the system has its libraries.
"""

import array
import collections
import collections.abc
import ctypes
import itertools
import math
import numbers
import os
import queue
import struct
import threading
import time
import typing

_UNBOUNDED = 2**64 - 1
_TOO_SHORT = 3


class Error(Exception):
    """The cause of a refusal, in words; each subclass is a code of punctual.h."""

    code = 20

    def __str__(self):
        return " ".join(map(str, self.args))


class NotFound(Error, KeyError):
    code = 1


class TimedOut(Error, TimeoutError):
    code = 2


class Argument(Error, ValueError):
    code = 4


class Closed(Error):
    code = 5


class Busy(Error):
    code = 6


class BadKey(Error, ValueError):
    code = 7


class BadValue(Error, ValueError):
    code = 8


class WrongKind(Error, TypeError):
    code = 9


class Conflict(Error):
    code = 10


class Late(Error, TimeoutError):
    code = 11


class Full(Error):
    code = 12


class LimitReached(Error):
    code = 13


class InUse(Error):
    code = 14


class BadSetting(Error, ValueError):
    code = 15


class Damaged(Error):
    code = 16


class WrongFormat(Error):
    code = 17


class SystemFailure(Error, OSError):
    code = 18


class Forked(Error):
    code = 19


class Panic(Error):
    code = 21


_ERRORS = {kind.code: kind for kind in Error.__subclasses__()}


def _structure(name, **fields):
    return type(name, (ctypes.Structure,), {"_fields_": list(fields.items())})


_size, _address, _u32, _u64 = ctypes.c_size_t, ctypes.c_void_p, ctypes.c_uint32, ctypes.c_uint64
_Object = _structure("_Object", key=ctypes.c_char_p, key_len=_size, valid_for=_u64, period=_u64, max_len=_size, history=_size)
_Options = _structure("_Options", folder=ctypes.c_char_p, durability=_u32, quota=_u64, objects=_address, object_count=_size)
_Write = _structure("_Write", kind=_u32, key=ctypes.c_char_p, key_len=_size, value=ctypes.c_char_p, value_len=_size, life=_u64)
_Reading = _structure("_Reading", len=_size, age=_u64, number=_u64, fresh=ctypes.c_bool)
_Rows = _structure("_Rows", count=_size, row=_address, values=_address, values_len=_size)
_Change = _structure("_Change", kind=_u32, key_len=_u32, number=_u64, key=ctypes.c_char * 512)
_Figures = _structure("_Figures", objects=_u64, fresh_share=ctypes.c_double, offered=_u64, installed=_u64, superseded=_u64,
                      quota=_u64, taken=_u64, data=_u64, readers=_u64, readers_ended=_u64)
_ROW = "@PNPNQ"  # struct punctual_row


def _load():
    path = os.environ.get("PUNCTUAL_LIBRARY") or os.path.join(os.path.dirname(os.path.abspath(__file__)), "libpunctual.so")
    path = path if os.path.exists(path) else "libpunctual.so"
    try:
        library = ctypes.CDLL(path)
    except OSError as error:
        raise ImportError(f"{error}: name the library in PUNCTUAL_LIBRARY; `cargo build --release -p punctual-c` builds "
                          "target/release/libpunctual.so") from error
    bytes_, flag = [_address, _size], [ctypes.c_bool]
    for name, types in {
        "store_open": [_address, _size, _address],
        "store_close": [_address],
        "store_flush": [_address],
        "store_put": [_address] + 2 * bytes_,
        "store_delete": [_address] + bytes_,
        "store_get": [_address] + 2 * bytes_ + [_address],
        "store_commit": [_address] + bytes_ + [_u64] + flag,
        "store_range": [_address] + 2 * bytes_ + [_size] + flag + [_address],
        "store_prefix": [_address] + bytes_ + [_size] + flag + [_address],
        "store_offer": [_address] + 2 * bytes_ + [_u64],
        "store_read": [_address] + bytes_ + [_u64] + bytes_ + [_address],
        "store_history": [_address] + bytes_ + [_address],
        "store_figures": [_address, _address, _size],
        "store_watch": [_address] + bytes_ + flag + [_size, _address],
        "watch_next": [_address, _u64, _address],
        "watch_close": [_address],
        "rows_free": [_address],
    }.items():
        function = getattr(library, "punctual_" + name)
        function.argtypes = types
        function.restype = None if name == "rows_free" else ctypes.c_int
    library.punctual_last_error.restype = library.punctual_version.restype = ctypes.c_char_p
    return library


_library = _load()
__version__ = _library.punctual_version().decode()


def _check(code):
    if code:
        raise _ERRORS.get(code, Error)(_library.punctual_last_error().decode())


def _bytes(value):
    """The bytes of a key or a value."""
    if isinstance(value, bytes):
        return value
    return value.encode() if isinstance(value, str) else bytes(memoryview(value))


def _nanos(seconds):
    """A span in nanoseconds, at least 1: 0 stands for None."""
    if seconds is None:
        return 0
    if not 0 <= seconds <= 1e9:  # NaN neither
        raise Argument(f"{seconds} s: give seconds from 0 to 1e9")
    return max(1, int(seconds * 1e9))


class Object(typing.NamedTuple):
    """A temporal object: for how long a reading is fresh, how often its sensor reports (one of both is enough), its
    longest value in bytes, and how many last values are kept in memory."""

    key: typing.Union[bytes, str]
    valid_for: typing.Optional[float] = None
    period: typing.Optional[float] = None
    max_len: int = 8
    history: int = 1


class Reading(typing.NamedTuple):
    """A value of a temporal object. `age`: inf if unknown, after a restart of the machine. `float(reading)` is the number
    that was offered."""

    value: bytes
    age: float
    fresh: bool
    number: int

    def __float__(self):
        return struct.unpack("<d", self.value)[0]


class Change(typing.NamedTuple):
    """A change: "put", "deleted", "expired", "life" (number: 1 if the record will expire), "reading" (number: the
    reading's) or "missed" (number: how many changes, whose keys are not known: read all that is watched)."""

    kind: str
    key: bytes
    number: int


_KINDS = "put", "deleted", "expired", "life", "reading", "missed"


class Rows(collections.abc.Sequence):
    """Records of one commit, as pairs of key and value; or a history, the oldest first, as values."""

    def __init__(self, call, *arguments):
        rows = ctypes.POINTER(_Rows)()
        _check(call(*arguments, ctypes.byref(rows)))
        try:
            head = rows.contents
            table = ctypes.string_at(head.row, head.count * struct.calcsize(_ROW))
            table = list(struct.iter_unpack(_ROW, table))
            keys = sum(row[1] for row in table)
            self._keys = ctypes.string_at(table[0][0], keys) if keys else None
            self._values = ctypes.string_at(head.values, head.values_len)
        finally:
            _library.punctual_rows_free(rows)
        self._key_ends = array.array("Q", itertools.accumulate(row[1] for row in table))
        self._value_ends = array.array("Q", itertools.accumulate(row[3] for row in table))
        self.ages_ns = array.array("Q", (row[4] for row in table))

    def __len__(self):
        return len(self.ages_ns)

    def __getitem__(self, at):
        if isinstance(at, slice):
            return [self[one] for one in range(*at.indices(len(self)))]
        if not -len(self) <= at < len(self):
            raise IndexError(f"row {at} of {len(self)}")
        at %= len(self)
        value = self._values[self._value_ends[at - 1] if at else 0:self._value_ends[at]]
        if self._keys is None:
            return value
        return self._keys[self._key_ends[at - 1] if at else 0:self._key_ends[at]], value

    def array(self, format="d"):
        """All values in one array, which NumPy takes without a copy: a memoryview of numbers, as in `struct`."""
        lengths = {end - begin for begin, end in zip([0, *self._value_ends], self._value_ends)}
        if len(lengths) > 1:
            raise BadValue(f"values of {min(lengths)} to {max(lengths)} bytes: an array has values of one length")
        return memoryview(self._values).cast(format)


class Batch:
    """Writes of one commit, in their order: `with store.batch() as batch`. An exception within leaves all undone."""

    def __init__(self, store, due_in, firm):
        self._store, self._due_in, self._firm, self._writes = store, _nanos(due_in), firm, []

    def _add(self, kind, key, value=b"", life=None):
        key, value = _bytes(key), _bytes(value)
        self._writes.append((kind, key, len(key), value, len(value), _nanos(life)))

    def put(self, key, value, life=None):
        """Sets a record; with a life, it is gone after that time."""
        self._add(0, key, value, life)

    def delete(self, key):
        """Removes a record, if it is there."""
        self._add(1, key)

    def expect(self, key, value=None):
        """Refuses the commit (Conflict) unless the record has this value; with None, unless there is no such record."""
        self._add(3, key) if value is None else self._add(2, key, value)

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        if kind is None:
            writes = (_Write * len(self._writes))(*self._writes)
            handle = self._store._handle
            _check(_library.punctual_store_commit(handle, writes, len(writes), self._due_in, self._firm))


class _Handle:
    """An open store or watch, which is closed at the end of a `with`, or when it is forgotten."""

    _is_open = False

    def close(self):
        if self._is_open:
            self._is_open = False
            _check(type(self)._closes(self._handle))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def __del__(self):
        try:
            self.close()
        except Error:
            pass  # a reading was not written


class Store(_Handle):
    """A store in a folder, which is made if it is missing; without a folder, in memory. `close` writes the readings that
    were not written yet, and ends the store's watches.

    durability: "durable" (the default), "no-meta-sync" or "volatile"; quota: most bytes that puts take in the file."""

    _closes = _library.punctual_store_close

    def __init__(self, folder=None, *, durability=None, quota=0, objects=()):
        levels = (None, "durable"), ("no-meta-sync",), ("volatile",)
        level = [at for at, names in enumerate(levels) if durability in names]
        if not level:
            raise BadSetting(f"durability={durability!r}: one of \"durable\", \"no-meta-sync\", \"volatile\"")
        keys = [_bytes(it.key) for it in objects]
        specs = (_Object * len(keys))(*[
            (key, len(key), _nanos(it.valid_for), _nanos(it.period), it.max_len, it.history)
            for key, it in zip(keys, objects)])
        folder = None if folder is None else os.fsencode(folder)
        if folder is not None and b"\0" in folder:
            raise Argument(f"folder {folder!r}: a path has no zero byte")
        options = _Options(folder, level[0], quota, ctypes.addressof(specs), len(specs))
        handle = _address()
        _check(_library.punctual_store_open(ctypes.byref(options), ctypes.sizeof(options), ctypes.byref(handle)))
        self._handle, self._is_open = handle.value, True

    def put(self, key, value, life=None):
        """Sets a record, in a commit of its own; with a life, it is gone after that time."""
        if life is not None:
            with self.batch() as batch:
                batch.put(key, value, life)
            return
        key, value = _bytes(key), _bytes(value)
        _check(_library.punctual_store_put(self._handle, key, len(key), value, len(value)))

    def __getitem__(self, key):
        key, length = _bytes(key), _size()
        return _filled(lambda: length.value, lambda buffer, room: _library.punctual_store_get(
            self._handle, key, len(key), buffer, room, ctypes.byref(length)))

    def __setitem__(self, key, value):
        self.put(key, value)

    def __delitem__(self, key):
        key = _bytes(key)
        _check(_library.punctual_store_delete(self._handle, key, len(key)))

    def __contains__(self, key):
        return self.get(key) is not None

    def get(self, key, default=None):
        """The value of a record or a temporal object."""
        try:
            return self[key]
        except NotFound:
            return default

    def delete(self, key):
        """Removes a record; whether it was there."""
        try:
            del self[key]
        except NotFound:
            return False
        return True

    def batch(self, due_in=None, firm=False):
        """Several writes in one commit, which should be done in `due_in` seconds; with `firm`, it is refused after that
        (Late)."""
        return Batch(self, due_in, firm)

    def range(self, low=None, high=None, limit=0, reverse=False):
        """The records from `low` to before `high`, in the order of keys: Rows."""
        low, high = (None if bound is None else _bytes(bound) for bound in (low, high))
        sizes = [len(bound or b"") for bound in (low, high)]
        return Rows(_library.punctual_store_range, self._handle, low, sizes[0], high, sizes[1], limit, reverse)

    def prefix(self, prefix, limit=0, reverse=False):
        """The records whose keys begin with `prefix`: Rows."""
        prefix = _bytes(prefix)
        return Rows(_library.punctual_store_prefix, self._handle, prefix, len(prefix), limit, reverse)

    def __iter__(self):
        return (key for key, _ in self.range())

    def offer(self, key, value, age=None):
        """Offers a reading, a number or bytes, that was sampled `age` seconds ago; touches no disk."""
        key = _bytes(key)
        value = struct.pack("<d", value) if isinstance(value, numbers.Real) else _bytes(value)
        _check(_library.punctual_store_offer(self._handle, key, len(key), value, len(value), _nanos(age)))

    def read(self, key, max_age=None):
        """The latest Reading of a temporal object: fresh if at most `max_age` old, else while it is valid."""
        key, found, bound = _bytes(key), _Reading(), _nanos(max_age)
        value = _filled(lambda: found.len, lambda buffer, room: _library.punctual_store_read(
            self._handle, key, len(key), bound, buffer, room, ctypes.byref(found)))
        return Reading(value, math.inf if found.age == _UNBOUNDED else found.age * 1e-9, found.fresh, found.number)

    def history(self, key):
        """The last values of a temporal object, the oldest first: Rows."""
        key = _bytes(key)
        return Rows(_library.punctual_store_history, self._handle, key, len(key))

    def watch(self, key="", prefix=False, capacity=1024):
        """A Watch of a key, or of all keys that begin with it; of all keys without one."""
        return Watch(self, _bytes(key), prefix or not key, capacity)

    def flush(self):
        """Writes the readings that have come since the last flush, and makes all writes durable."""
        _check(_library.punctual_store_flush(self._handle))

    def figures(self):
        """Counts and sizes, by their names in punctual.h."""
        figures = _Figures()
        _check(_library.punctual_store_figures(self._handle, ctypes.byref(figures), ctypes.sizeof(figures)))
        return {name: getattr(figures, name) for name, _ in _Figures._fields_}


_local = threading.local()


def _filled(length, call):
    """The value that `call` copies to a buffer, which is made longer if it must be."""
    buffer = getattr(_local, "buffer", None)
    if buffer is None:
        buffer = _local.buffer = ctypes.create_string_buffer(4096)
    while (code := call(buffer, len(buffer))) == _TOO_SHORT:
        buffer = ctypes.create_string_buffer(length())
    _check(code)
    return ctypes.string_at(buffer, length())


def _next(handle, timeout):
    change = _Change()
    _check(_library.punctual_watch_next(handle, timeout, ctypes.byref(change)))
    key = ctypes.string_at(ctypes.addressof(change) + _Change.key.offset, change.key_len)
    return Change(_KINDS[change.kind], key, change.number)


class _Listener:
    """A thread that waits for the tasks of `async for`: for each request, one change or the end."""

    def __init__(self, handle):
        self.ready, self.requests, self.asked, self.task = collections.deque(), queue.SimpleQueue(), False, None
        threading.Thread(target=self._run, args=(handle,), daemon=True).start()

    def _run(self, handle):
        while self.requests.get():
            try:
                found = _next(handle, _UNBOUNDED)
            except Error as error:
                found = error
            self.ready.append(found)
            self.asked = False
            try:
                self.task.get_loop().call_soon_threadsafe(self._arrived)
            except RuntimeError:
                pass  # that loop has ended: the next task finds the change
            if isinstance(found, Error):
                return

    def _arrived(self):
        if not self.task.done():
            self.task.set_result(None)


class Watch(_Handle):
    """Changes from now on: `for change in watch`, `async for change in watch`, or `watch.next(timeout)`. A change has no
    value: read the record, and see this change or a newer one. Iterations end when watch or store are closed."""

    _closes = _library.punctual_watch_close
    _listener = None

    def __init__(self, store, key, prefix, capacity):
        handle = _address()
        code = _library.punctual_store_watch(store._handle, key, len(key), prefix, capacity, ctypes.byref(handle))
        _check(code)
        self._handle, self._is_open = handle.value, True

    def close(self):
        """Ends the watch, and the wait of another thread or task on it."""
        try:
            super().close()
        finally:
            if self._listener:
                self._listener.requests.put(False)

    def next(self, timeout=None):
        """The next change; None after `timeout` seconds."""
        until = None if timeout is None else time.monotonic() + timeout
        while True:
            # In parts, because Ctrl-C is noticed between calls only.
            part = 0.25 if until is None else min(0.25, max(0, until - time.monotonic()))
            try:
                return _next(self._handle, _nanos(part))
            except TimedOut:
                if until is not None and time.monotonic() >= until:
                    return None

    def __iter__(self):
        return self

    def __next__(self):
        try:
            return self.next()
        except Closed:
            raise StopIteration from None

    def __aiter__(self):
        return self

    async def __anext__(self):
        import asyncio

        listener = self._listener = self._listener or _Listener(self._handle)
        if listener.task and not listener.task.done():
            raise Busy("another task waits on this watch: open one for each")
        try:
            while not listener.ready:
                listener.task = asyncio.get_running_loop().create_future()
                if not listener.asked:
                    try:
                        return _next(self._handle, 0)
                    except TimedOut:
                        listener.asked = True
                        listener.requests.put(True)
                if not listener.ready:
                    await listener.task
            found = listener.ready.popleft()
            if isinstance(found, Error):
                raise found
            return found
        except Closed:
            raise StopAsyncIteration from None
        finally:
            listener.task.cancel()
