"""Reports a program's jobs to `punctual attach`: a context manager around each job, on Linux, Python 3.8 or later.

    import punctual_job

    control = punctual_job.Job("control", deadline=0.005, period=0.010)
    while True:
        wait_for_the_next_period()
        with control:
            compute()

While no `punctual attach` runs, a job costs a look at one word; one that starts later, or again, finds the program at its
next job. No call waits; jobs that come faster than they are read are dropped and counted. docs/guide/attach.md describes the
file of `punctual attach` and the formats. A Job belongs to one thread; a forked child opens its own.
"""

import array
import errno
import fcntl
import mmap
import os
import socket
import stat
import struct
import threading
import time
import weakref

BYTES, RECORDS, FIRST_RECORD = 4096, 120, 32
# Places in the ring, in numbers of 64 bits.
HEAD, OPEN_BEGUN, OPEN_RELEASED, NUMBER, DROPPED, MISUSED, CLOSED, TAIL = 16, 17, 18, 19, 20, 21, 22, 24
F_ADD_SEALS, F_SEAL_SHRINK, F_SEAL_GROW = 1033, 2, 4


def folder():
    """The folder of this user's reports, as `punctual` chooses it."""
    named, user = os.environ.get("PUNCTUAL_RUN_DIR"), os.geteuid()
    if named:
        return named
    if user == 0 and (os.path.isdir("/run/punctual") or os.access("/run", os.W_OK)):
        return "/run/punctual"
    if user != 0 and os.environ.get("XDG_RUNTIME_DIR"):
        return os.environ["XDG_RUNTIME_DIR"] + "/punctual"
    return f"{os.environ.get('TMPDIR') or '/tmp'}/punctual-{user}"


def _check(found, kind, path):
    """Refuses what is not this user's or the superuser's: another user could take its memory away from this program."""
    if stat.S_IFMT(found.st_mode) != kind or found.st_uid not in (0, os.geteuid()):
        raise PermissionError(errno.EPERM, "it is a link, or another user's", path)


def _page(path):
    """The page that says whether a runtime listens, as numbers of 32 bits."""
    where, flags = os.path.dirname(path), os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    os.makedirs(where, mode=0o755, exist_ok=True)
    _check(os.lstat(where), stat.S_IFDIR, where)
    try:
        file = os.open(path, os.O_RDWR | os.O_CREAT | flags, 0o644)
        writes = True
    except OSError:
        file, writes = os.open(path, os.O_RDONLY | flags), False
    try:
        if writes:  # with memory: touching a hole in a full file system ends a program
            os.posix_fallocate(file, 0, BYTES)
        found = os.fstat(file)
        _check(found, stat.S_IFREG, path)
        if found.st_size < BYTES:
            raise PermissionError(errno.EPERM, "no page of reports", path)
        return memoryview(mmap.mmap(file, BYTES, mmap.MAP_SHARED, mmap.PROT_READ)).cast("I")
    finally:
        os.close(file)


class Job:
    """The jobs of one task, as one thread does them. Times are in seconds; None where the file of `punctual attach` says
    them: `deadline` from a job's release, `period` between two releases, which come at such steps. OSError: the folder
    cannot be used, and the task not reported."""

    def __init__(self, name, deadline=None, period=None):
        if not 1 <= len(name.encode()) <= 63 or "\0" in name:
            raise ValueError("the name of a task has 1 to 63 bytes, none of them 0")
        for what, span in ("deadline", deadline), ("period", period):
            if span is not None and not 0 <= span <= 1e9:  # NaN neither
                raise ValueError(f"{what}={span}: give seconds from 0 to 1e9")
        where = folder()
        self._page, self._socket = _page(where + "/jobs"), where + "/jobs.socket"
        made = os.memfd_create("punctual jobs", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        self._file = open(made, "r+b", buffering=0)
        self._file.truncate(BYTES)
        fcntl.fcntl(self._file, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW)
        self._memory = mmap.mmap(made, BYTES)
        head = (b"punctjob", 1, BYTES, os.getpid(), 0, _nanos(deadline), _nanos(period), name.encode())
        struct.pack_into("8sIIiiQQ64s", self._memory, 0, *head)
        # Numbers of 64 bits are written whole.
        self._ring = memoryview(self._memory).cast("Q")
        self._epoch = 0
        _jobs.add(self)

    def _forget(self):
        """Gives page, ring and file back; jobs are not reported any more."""
        self._page = memoryview(bytes(16)).cast("I")
        self._ring = self._memory = None
        self._file.close()

    def begin(self, released=None):
        """Begins a job, which was released at `released`, in seconds of time.monotonic(), if that is given."""
        epoch = self._page[3]
        if epoch and (epoch == self._epoch or self._hand_over(epoch)):
            ring = self._ring
            if ring[OPEN_BEGUN]:
                ring[MISUSED] += 1
            else:
                ring[OPEN_RELEASED] = _nanos(released)
                ring[OPEN_BEGUN] = time.monotonic_ns()

    def end(self):
        """Ends the job under way."""
        if not self._page[3]:
            return
        ring = self._ring
        head, begun = ring[HEAD], ring[OPEN_BEGUN]
        if not begun:
            ring[MISUSED] += 1
            return
        if head - ring[TAIL] < RECORDS:
            at = FIRST_RECORD + head % RECORDS * 4
            ring[at], ring[at + 1], ring[at + 2], ring[at + 3] = (
                ring[NUMBER], ring[OPEN_RELEASED], begun, time.monotonic_ns())
            ring[HEAD] = head + 1
        else:
            ring[DROPPED] += 1
        ring[NUMBER] += 1
        ring[OPEN_BEGUN] = 0

    def close(self):
        """Closes the task."""
        if self._ring is not None:
            self._ring[CLOSED] = 1
        self._forget()

    def __enter__(self):
        self.begin()
        return self

    def __exit__(self, *_):
        self.end()

    def _hand_over(self, epoch):
        """Hands the ring over to a runtime that has begun to listen; False if its queue is full or descriptors are short."""
        ring = self._ring
        struct.pack_into("i", self._memory, 20, threading.get_native_id())
        ring[OPEN_BEGUN] = ring[DROPPED] = ring[MISUSED] = 0
        ring[TAIL] = ring[HEAD]  # no runtime reads the ring now
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as plug:
                rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [self._file.fileno()]))]
                plug.sendmsg([b"ring"], rights, 0, self._socket)
        except (FileNotFoundError, ConnectionRefusedError, PermissionError):
            pass  # it has died, or does not let this user in: the next one is tried
        except OSError:
            return False
        self._epoch = epoch
        return True


_jobs = weakref.WeakSet()
os.register_at_fork(after_in_child=lambda: [job._forget() for job in list(_jobs)])


def _nanos(seconds):
    return 0 if seconds is None else int(seconds * 1e9)
