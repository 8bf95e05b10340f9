"""Stock trading on a cluster, or on a store alone, with redis-py (`pip install redis`).

    punctual cluster run                            # prints where its balancers are
    python3 examples/stock_trading.py 127.0.0.1:PORT

A source sets prices, of which none older than a second is traded at. Users buy and sell, each order within 250 ms or not
at all, and only if what they have is still what they have read. At the end no money and no share is lost.
"""

import collections
import random
import sys
import threading
import time

import redis

HOST, _, PORT = sys.argv[1].rpartition(":")
SECONDS = float(sys.argv[2]) if len(sys.argv) > 2 else 5
STOCKS, USERS, CASH, SHARES = 20, 8, 100_000, 100
until = time.monotonic() + SECONDS
endings = collections.Counter()
died = []  # why threads ended before their time
threading.excepthook = lambda dead: died.append(f"{dead.thread.name}: {dead.exc_value!r}")


def client(deadline_ms):
    """A connection whose commands are carried out within the deadline, or not at all."""
    connection = redis.Redis(HOST, int(PORT), single_connection_client=True, decode_responses=True)
    connection.execute_command("CLIENT", "DEADLINE", deadline_ms)
    return connection


def set_prices():
    """The source: all prices ten times a second, sent ahead, so that none waits for the one before."""
    source = client(1000)
    while time.monotonic() < until:
        pipeline = source.pipeline(transaction=False)
        for stock in range(STOCKS):
            pipeline.execute_command("TSET", f"price:{stock}", random.randint(900, 1100))
        pipeline.execute(raise_on_error=False)  # one that is late is followed by the next
        time.sleep(0.1)


def trade(user):
    """A user: reads what it has, and exchanges money and shares with the market if nothing has changed."""
    connection = client(250)
    while time.monotonic() < until:
        stock, count = random.randrange(STOCKS), random.choice([-3, -2, -1, 1, 2, 3])
        cash, held = f"cash:{user}", f"share:{user}:{stock}"
        try:
            with connection.pipeline() as order:
                order.watch(cash, held)
                fresh = order.execute_command("GETFRESH", f"price:{stock}", 1000)
                if fresh is None:
                    endings["no fresh price"] += 1
                    continue
                price = int(fresh[0])
                money, shares = map(int, order.mget(cash, held))
                if money < count * price or shares < -count:
                    endings["cannot pay or deliver"] += 1
                    continue
                order.multi()
                order.incrby(cash, -count * price).incrby("cash:market", count * price)
                order.incrby(held, count).incrby(f"market:{stock}", -count)
                order.execute()
                endings["traded"] += 1
        except redis.WatchError:
            endings["someone else was first"] += 1
        except redis.ResponseError as error:
            endings[str(error).split()[0]] += 1  # LATE, STALE: not carried out; UNKNOWN: OUTCOME tells


setup = client(20_000)
first = {f"market:{stock}": 0 for stock in range(STOCKS)} | {"cash:market": 0}
first |= {f"cash:{user}": CASH for user in range(USERS)}
first |= {f"share:{user}:{stock}": SHARES for user in range(USERS) for stock in range(STOCKS)}
setup.mset(first)
[setup.execute_command("TSET", f"price:{stock}", 1000) for stock in range(STOCKS)]
threads = [threading.Thread(target=set_prices)] + [threading.Thread(target=trade, args=[user]) for user in range(USERS)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]

has = dict(zip(first, map(int, setup.mget(list(first)))))
money = sum(count for key, count in has.items() if key.startswith("cash"))
shares = sum(count for key, count in has.items() if not key.startswith("cash"))
debts = [key for key, count in has.items() if count < 0 and "market" not in key]
print(dict(endings), f"money {money}, shares {shares}, debts {debts}, threads that died {died}")
conserved = (money, shares, debts) == (USERS * CASH, USERS * STOCKS * SHARES, [])
sys.exit(not conserved or bool(died) or endings["traded"] == 0)
