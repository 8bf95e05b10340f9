"""The store of punctual: records and values of sensors, with deadlines, ages and watches; Linux, Python 3.8 or later.

    import punctual

    with punctual.Store("robot.store", objects=[punctual.Object("battery", valid_for=0.2)]) as store:
        store["door"] = "open"
        store.offer("battery", 12.6)
        reading = store.read("battery")
        print(float(reading), reading.age, reading.fresh)

Keys are bytes or str; values are bytes, str, or any buffer; what is read is bytes. Times are in seconds. Any thread may
call any method: other Python threads run meanwhile. While a store is open, its process must not open, copy or delete
the files in its folder, nor load a second copy of the library: each removes the lock that keeps other processes out.
docs/guide/store.md says what the store promises. The library is libpunctual.so: beside this file, where
PUNCTUAL_LIBRARY says, or where the system has its libraries.
"""

import array
import atexit
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
import weakref

__all__ = ["Batch", "Change", "Object", "Reading", "Rows", "Store", "Watch", "Error"]  # and each exception

_UNBOUNDED = 2**64 - 1
_TOO_SHORT = 3
_Data = typing.Union[bytes, str, bytearray, memoryview]


class Error(Exception):
    """The cause of a refusal, in words; each subclass is a code of punctual.h."""

    code = 20

    def __str__(self):
        return " ".join(map(str, self.args))


class NotFound(Error, KeyError):
    """There is no such record, or no reading yet."""

    code = 1


class TimedOut(Error, TimeoutError):
    """Nothing has changed until the time-out."""

    code = 2


class Argument(Error, ValueError):
    """An argument is out of range."""

    code = 4


class Closed(Error):
    """Store or watch are closed."""

    code = 5


class Busy(Error):
    """Another thread waits on this watch."""

    code = 6


class BadKey(Error, ValueError):
    """No record, or no object, can have this key."""

    code = 7


class BadValue(Error, ValueError):
    """The value is longer than its record or object allows, or none for it."""

    code = 8


class WrongKind(Error, TypeError):
    """A record was named where a temporal object is needed, or the other way round."""

    code = 9


class Conflict(Error):
    """A record is not as the commit expects: nothing has changed."""

    code = 10


class Late(Error, TimeoutError):
    """The firm deadline has passed, or others wrote for more than a second: nothing has changed."""

    code = 11


class Full(Error):
    """Quota or disk are full: nothing has changed, deletes succeed."""

    code = 12


class LimitReached(Error):
    """More stores, watches, threads or bytes than there may be."""

    code = 13


class InUse(Error):
    """Another process, or this one, has the store open."""

    code = 14


class BadSetting(Error, ValueError):
    """A setting is refused."""

    code = 15


class Damaged(Error):
    """The store is damaged."""

    code = 16


class WrongFormat(Error):
    """The folder holds a store of another format."""

    code = 17


class SystemFailure(Error, OSError):
    """The operating system refuses the files, or failed; `errno` is not set."""

    code = 18


class Forked(Error):
    """The store belongs to the process from which this one was forked."""

    code = 19


class Panic(Error):
    """A fault of the library; the call may be half done."""

    code = 21


_ERRORS = {kind.code: kind for kind in Error.__subclasses__()}
__all__ += [kind.__name__ for kind in _ERRORS.values()]


def _structure(name, **fields):
    return type(name, (ctypes.Structure,), {"_fields_": list(fields.items())})


_size, _address, _u32, _u64 = ctypes.c_size_t, ctypes.c_void_p, ctypes.c_uint32, ctypes.c_uint64
_Object = _structure("_Object", key=ctypes.c_char_p, key_len=_size, valid_for=_u64, period=_u64, max_len=_size,
                     history=_size)
_Options = _structure("_Options", folder=ctypes.c_char_p, durability=_u32, quota=_u64, objects=_address,
                      object_count=_size)
_Write = _structure("_Write", kind=_u32, key=ctypes.c_char_p, key_len=_size, value=ctypes.c_char_p, value_len=_size,
                    life=_u64)
_Reading = _structure("_Reading", len=_size, age=_u64, number=_u64, fresh=ctypes.c_bool)
_Rows = _structure("_Rows", count=_size, row=_address, values=_address, values_len=_size)
_Change = _structure("_Change", kind=_u32, key_len=_u32, number=_u64, key=ctypes.c_char * 512)
_Figures = _structure("_Figures", objects=_u64, fresh_share=ctypes.c_double, offered=_u64, installed=_u64,
                      superseded=_u64, quota=_u64, taken=_u64, data=_u64, readers=_u64, readers_ended=_u64)
_ROW = "@PNPNQ"  # struct punctual_row


def _load():
    beside = os.path.join(os.path.dirname(os.path.abspath(__file__)), "libpunctual.so")
    path = os.environ.get("PUNCTUAL_LIBRARY") or beside
    path = path if os.path.exists(path) else "libpunctual.so"
    try:
        library = ctypes.CDLL(path)
    except OSError as error:
        raise ImportError(f"{error}: name the library in PUNCTUAL_LIBRARY; `cargo build --release -p punctual-c` "
                          "builds target/release/libpunctual.so") from error
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
    library.punctual_take_error.restype = library.punctual_version.restype = ctypes.c_char_p
    return library


_library = _load()
__version__ = _library.punctual_version().decode()


def _check(code):
    if code:
        # Takes its own text: a handler of signals that has failed since has taken the one behind it.
        raise _ERRORS.get(code, Error)(_library.punctual_take_error().decode())


def _bytes(value):
    """The bytes of a key or a value."""
    if isinstance(value, bytes):
        return value
    try:
        return value.encode() if isinstance(value, str) else bytes(memoryview(value))
    except TypeError:
        raise TypeError(f"{type(value).__name__}: give bytes, str or a buffer; a reading is a float or bytes") from None


def _nanos(seconds):
    """A span in nanoseconds, at least 1: 0 stands for None."""
    if seconds is None:
        return 0
    if not 0 <= seconds <= 1e9:  # NaN neither
        raise Argument(f"{seconds} s: give seconds from 0 to 1e9")
    return max(1, int(seconds * 1e9))


def _count(name, number):
    """A number that C's types hold, which ctypes does not check."""
    if not 0 <= number < 2**63:
        raise Argument(f"{name}={number}: give at least 0, and less than 2**63")
    return number


class Object(typing.NamedTuple):
    """A temporal object: for how long a reading is fresh, how often its sensor reports (one of both is enough), its
    longest value in bytes, and how many last values are kept in memory."""

    key: typing.Union[bytes, str]
    valid_for: typing.Optional[float] = None
    period: typing.Optional[float] = None
    max_len: int = 8
    history: int = 1


class Reading(typing.NamedTuple):
    """A value of a temporal object. `age`: inf if unknown, after a restart of the machine. `float(reading)` is the
    number that was offered."""

    value: bytes
    age: float
    fresh: bool
    number: int

    def __float__(self) -> float:
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
        #: Age of each reading in nanoseconds, 2**64 - 1 if unknown; of records not used.
        self.ages_ns = array.array("Q", (row[4] for row in table))

    def __len__(self) -> int:
        return len(self.ages_ns)

    def __repr__(self):
        return f"<punctual.Rows: {len(self)}>"

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

    def array(self, format: str = "d") -> memoryview:
        """All values in one array, which NumPy takes without a copy: a memoryview of numbers. `format` is one letter of
        `struct`, in this machine's order of bytes: without "<" or ">"."""
        lengths = {end - begin for begin, end in zip([0, *self._value_ends], self._value_ends)}
        if len(lengths) > 1:
            raise BadValue(f"values of {min(lengths)} to {max(lengths)} bytes: an array has values of one length")
        try:
            return memoryview(self._values).cast(format)
        except (TypeError, ValueError) as error:
            raise BadValue(f"format {format!r}, {len(self._values)} bytes: {error}") from None


class Batch:
    """Writes of one commit, in their order: `with store.batch() as batch`. An exception within leaves all undone. The
    commit, and the time until it is due, begin at the end of the `with`."""

    def __init__(self, store, due_in, firm):
        self._store, self._due_in, self._firm, self._writes = store, _nanos(due_in), firm, []

    def _add(self, kind, key, value=b"", life=None):
        key, value = _bytes(key), _bytes(value)
        self._writes.append((kind, key, len(key), value, len(value), _nanos(life)))

    def put(self, key: _Data, value: _Data, life: typing.Optional[float] = None) -> None:
        """Sets a record; with a life, it is gone after that time."""
        self._add(0, key, value, life)

    def delete(self, key: _Data) -> None:
        """Removes a record, if it is there."""
        self._add(1, key)

    def expect(self, key: _Data, value: typing.Optional[_Data] = None) -> None:
        """Refuses the commit (Conflict) unless the record has this value; with None, unless there is no such record."""
        self._add(3, key) if value is None else self._add(2, key, value)

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        taken, self._writes = self._writes, []
        if kind is None:
            writes = (_Write * len(taken))(*taken)
            handle = self._store._handle
            _check(_library.punctual_store_commit(handle, writes, len(writes), self._due_in, self._firm))


class _Handle:
    """An open store or watch, which is closed at the end of a `with`, or when it is forgotten."""

    _is_open = False

    def close(self) -> None:
        """Closes it, once."""
        if self._is_open:
            try:
                _check(type(self)._closes(self._handle))
            except Closed:
                pass  # a close that was interrupted, or another thread's
            self._is_open = False

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def __reduce__(self):
        raise TypeError(f"a {type(self).__name__} is not copied: open one in the other process")

    def __repr__(self):
        return f"<punctual.{type(self).__name__}: {'open' if self._is_open else 'closed'}>"

    def __del__(self):
        try:
            self.close()
        except Error:
            pass  # a reading was not written


class Store(_Handle):
    """A store in a folder, which is made if it is missing; without a folder, in memory. `close` writes the readings
    that were not written yet, and ends the store's watches.

    durability: "durable" (the default), "no-meta-sync" or "volatile"; quota: most bytes that puts take in the file."""

    _closes = _library.punctual_store_close

    def __init__(self, folder: typing.Union[str, bytes, os.PathLike, None] = None, *,
                 durability: typing.Optional[str] = None, quota: int = 0, objects: typing.Iterable[Object] = ()):
        levels = (None, "durable"), ("no-meta-sync",), ("volatile",)
        level = [at for at, names in enumerate(levels) if durability in names]
        if not level:
            raise BadSetting(f"durability={durability!r}: one of \"durable\", \"no-meta-sync\", \"volatile\"")
        objects = list(objects)
        if not all(isinstance(it, Object) for it in objects):
            raise Argument("objects: give a list of punctual.Object")
        keys = [_bytes(it.key) for it in objects]
        specs = (_Object * len(keys))(*[
            (key, len(key), _nanos(it.valid_for), _nanos(it.period), _count("max_len", it.max_len),
             _count("history", it.history))
            for key, it in zip(keys, objects)])
        folder = None if folder is None else os.fsencode(folder)
        if folder is not None and b"\0" in folder:
            raise Argument(f"folder {folder!r}: a path has no zero byte")
        options = _Options(folder, level[0], _count("quota", quota), ctypes.addressof(specs), len(specs))
        handle = _address()
        _check(_library.punctual_store_open(ctypes.byref(options), ctypes.sizeof(options), ctypes.byref(handle)))
        self._handle, self._is_open = handle.value, True
        _stores.add(self)

    def put(self, key: _Data, value: _Data, life: typing.Optional[float] = None) -> None:
        """Sets a record, in a commit of its own; with a life, it is gone after that time."""
        if life is not None:
            with self.batch() as batch:
                batch.put(key, value, life)
            return
        key, value = _bytes(key), _bytes(value)
        _check(_library.punctual_store_put(self._handle, key, len(key), value, len(value)))

    def __getitem__(self, key: _Data) -> bytes:
        """The value of a record or a temporal object, or NotFound."""
        key, length = _bytes(key), _size()
        return _filled(lambda: length.value, lambda buffer, room: _library.punctual_store_get(
            self._handle, key, len(key), buffer, room, ctypes.byref(length)))

    def __setitem__(self, key, value):
        self.put(key, value)

    def __delitem__(self, key):
        key = _bytes(key)
        _check(_library.punctual_store_delete(self._handle, key, len(key)))

    def __contains__(self, key) -> bool:
        return self.get(key) is not None

    def get(self, key: _Data, default=None) -> typing.Optional[bytes]:
        """The value of a record or a temporal object; `default` without one."""
        try:
            return self[key]
        except NotFound:
            return default

    def delete(self, key: _Data) -> bool:
        """Removes a record; whether it was there."""
        try:
            del self[key]
        except NotFound:
            return False
        return True

    def batch(self, due_in: typing.Optional[float] = None, firm: bool = False) -> Batch:
        """Several writes in one commit, which should be done in `due_in` seconds from the end of the `with`; with
        `firm`, the commit is refused after that (Late)."""
        return Batch(self, due_in, firm)

    def range(self, low: typing.Optional[_Data] = None, high: typing.Optional[_Data] = None, limit: int = 0,
              reverse: bool = False) -> Rows:
        """The records from `low` to before `high`, in the order of keys; at most `limit`, all with 0."""
        low, high = (None if bound is None else _bytes(bound) for bound in (low, high))
        sizes = [len(bound or b"") for bound in (low, high)]
        return Rows(_library.punctual_store_range, self._handle, low, sizes[0], high, sizes[1],
                    _count("limit", limit), reverse)

    def prefix(self, prefix: _Data, limit: int = 0, reverse: bool = False) -> Rows:
        """The records whose keys begin with `prefix`."""
        prefix = _bytes(prefix)
        return Rows(_library.punctual_store_prefix, self._handle, prefix, len(prefix), _count("limit", limit), reverse)

    def __iter__(self):
        return (key for key, _ in self.range())

    def offer(self, key: _Data, value: typing.Union[float, bytes], age: typing.Optional[float] = None) -> None:
        """Offers a reading, a number or bytes, that was sampled `age` seconds ago; touches no disk. To be offered in
        order of sampling: the reading that was offered last is the latest."""
        key = _bytes(key)
        if isinstance(value, str):
            raise BadValue("a reading is a number or bytes: float() or encode() the text")
        try:
            value = struct.pack("<d", value) if isinstance(value, numbers.Real) else _bytes(value)
        except (OverflowError, struct.error):
            raise BadValue("this number is larger than a double: offer bytes") from None
        _check(_library.punctual_store_offer(self._handle, key, len(key), value, len(value), _nanos(age)))

    def read(self, key: _Data, max_age: typing.Optional[float] = None) -> Reading:
        """The latest Reading of a temporal object: fresh if at most `max_age` old, else while it is valid."""
        key, found, bound = _bytes(key), _Reading(), _nanos(max_age)
        value = _filled(lambda: found.len, lambda buffer, room: _library.punctual_store_read(
            self._handle, key, len(key), bound, buffer, room, ctypes.byref(found)))
        return Reading(value, math.inf if found.age == _UNBOUNDED else found.age * 1e-9, found.fresh, found.number)

    def history(self, key: _Data) -> Rows:
        """The last values of a temporal object, the oldest first."""
        key = _bytes(key)
        return Rows(_library.punctual_store_history, self._handle, key, len(key))

    def watch(self, key: _Data = "", prefix: bool = False, capacity: int = 1024) -> "Watch":
        """A watch of a key, or of all keys that begin with it; of all keys without one. `capacity` changes wait to be
        taken, 1 to 65536."""
        return Watch(self, _bytes(key), prefix or not key, capacity)

    def flush(self) -> None:
        """Writes the readings that have come since the last flush, and makes all writes durable."""
        _check(_library.punctual_store_flush(self._handle))

    def figures(self) -> dict:
        """Counts and sizes, by their names in punctual.h."""
        figures = _Figures()
        _check(_library.punctual_store_figures(self._handle, ctypes.byref(figures), ctypes.sizeof(figures)))
        return {name: getattr(figures, name) for name, _ in _Figures._fields_}


_stores = weakref.WeakSet()


@atexit.register
def _close_all():
    """Closes what threads that are not waited for still hold, so that readings are written."""
    for store in list(_stores):
        store.__del__()


_local = threading.local()


def _filled(length, call):
    """The value that `call` copies to a buffer, which is made longer if it must be."""
    # Taken out while it is used: a handler of signals, or a __del__, may read in between.
    kept = buffer = _local.__dict__.pop("buffer", None) or ctypes.create_string_buffer(4096)
    while (code := call(buffer, len(buffer))) == _TOO_SHORT:
        _library.punctual_take_error()
        buffer = ctypes.create_string_buffer(length())
    try:
        _check(code)
        return ctypes.string_at(buffer, length())
    finally:
        _local.buffer = kept


def _next(handle, timeout):
    change = _Change()
    _check(_library.punctual_watch_next(handle, timeout, ctypes.byref(change)))
    key = ctypes.string_at(ctypes.addressof(change) + _Change.key.offset, change.key_len)
    return Change(_KINDS[change.kind], key, change.number)


class _Listener:
    """A thread that waits for the tasks of `async for`: for each request, one change or the end."""

    def __init__(self, handle):
        self.ready, self.requests, self.task = collections.deque(), queue.SimpleQueue(), None
        # Set while nothing is asked for, after the answer is ready.
        self.idle = threading.Event()
        self.idle.set()
        threading.Thread(target=self._run, args=(handle,), daemon=True).start()

    def _run(self, handle):
        while self.requests.get():
            try:
                found = _next(handle, _UNBOUNDED)
            except Error as error:
                found = error
            self.ready.append(found)
            self.idle.set()
            try:
                self.task.get_loop().call_soon_threadsafe(self._arrived)
            except RuntimeError:
                pass  # that loop has ended: the next task finds the change
            if isinstance(found, (Closed, Forked)):
                return

    def _arrived(self):
        if not self.task.done():
            self.task.set_result(None)

    def take(self):
        """The answer that is ready."""
        found = self.ready.popleft()
        if isinstance(found, Error):
            raise found
        return found


class Watch(_Handle):
    """Changes from now on: `for change in watch`, `async for change in watch`, or `watch.next(timeout)`. A change has
    no value: read the record, and see this change or a newer one. Iterations end when watch or store are closed. A
    watch keeps its store open."""

    _closes = _library.punctual_watch_close
    _listener = None

    def __init__(self, store, key, prefix, capacity):
        handle, capacity = _address(), _count("capacity", capacity)
        code = _library.punctual_store_watch(store._handle, key, len(key), prefix, capacity, ctypes.byref(handle))
        _check(code)
        self._store = store  # which is not forgotten meanwhile
        self._handle, self._is_open = handle.value, True

    def close(self) -> None:
        """Ends the watch, and the wait of another thread or task on it."""
        try:
            super().close()
        finally:
            if self._listener:
                self._listener.requests.put(False)

    def next(self, timeout: typing.Optional[float] = None) -> typing.Optional[Change]:
        """The next change; None after `timeout` seconds."""
        until = None if timeout is None else time.monotonic() + _nanos(timeout) * 1e-9
        while True:
            # In parts, because Ctrl-C is noticed between calls only.
            part = 0.25 if until is None else min(0.25, max(0, until - time.monotonic()))
            listener = self._listener
            try:
                if listener and not listener.idle.wait(part):
                    raise TimedOut
                return listener.take() if listener and listener.ready else _next(self._handle, _nanos(part))
            except TimedOut:
                if until is not None and time.monotonic() >= until:
                    return None

    def __iter__(self):
        return self

    def __next__(self) -> Change:
        try:
            return self.next()
        except Closed:
            raise StopIteration from None

    def __aiter__(self):
        return self

    async def __anext__(self) -> Change:
        import asyncio

        listener = self._listener = self._listener or _Listener(self._handle)
        if listener.task and not listener.task.done():
            raise Busy("another task waits on this watch: open one for each")
        try:
            while not listener.ready:
                listener.task = asyncio.get_running_loop().create_future()
                # An answer is ready before the listener is idle.
                if listener.idle.is_set() and not listener.ready:
                    try:
                        return _next(self._handle, 0)
                    except TimedOut:
                        listener.idle.clear()
                        listener.requests.put(True)
                if not listener.ready:
                    await listener.task
            return listener.take()
        except Closed:
            raise StopAsyncIteration from None
        finally:
            listener.task.cancel()
