"""A service that answers requests and reports each as a job, for `punctual attach examples/attach/control.toml`.

    PYTHONPATH=include python3 examples/attach/service.py 10      # for ten seconds

A job is released when its request comes, which is before the service has time for it.
"""

import queue
import sys
import threading
import time

import punctual_job

SECONDS = float(sys.argv[1]) if len(sys.argv) > 1 else 10
requests = queue.Queue(maxsize=100)


def clients():
    """Asks twenty times a second, until the end."""
    until = time.monotonic() + SECONDS
    while time.monotonic() < until:
        requests.put(time.monotonic())
        time.sleep(0.05)
    requests.put(None)


def answer():
    """Stands for the work on a request."""
    return sum(range(20_000))


threading.Thread(target=clients, daemon=True).start()
service = punctual_job.Job("service")
answered = 0
while (came := requests.get()) is not None:
    service.begin(released=came)
    answer()
    service.end()
    answered += 1
service.close()
print(f"{answered} requests were answered")
