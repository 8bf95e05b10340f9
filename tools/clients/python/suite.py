"""What a user of redis-py does, against `punctual serve`, or a node or a balancer of a federation (CLIENTS_AT). Run by
.ci/clients, which says where the servers are."""

import os
import subprocess
import threading
import unittest

import redis

PORT = int(os.environ["CLIENTS_PORT"])
TLS_PORT = int(os.environ["CLIENTS_TLS_PORT"])
USER, PASSWORD = os.environ["CLIENTS_USER"], os.environ["CLIENTS_PASSWORD"]
# On a federation some things are not, and are skipped with the reason.
FEDERATED = os.environ.get("CLIENTS_AT", "store") != "store"
# Far longer than anything here takes on a busy machine.
BOUND = 120


def alone(reason):
    return unittest.skipIf(FEDERATED, reason)


def patient(connection):
    """A request to a federation has a second unless its client says otherwise: too little on a busy machine."""
    connection.on_connect()
    connection.send_command("CLIENT", "DEADLINE", BOUND * 1000)
    connection.read_response()


class Suite:
    """Tests of one protocol."""

    protocol = 0

    def setUp(self):
        self.r = self.client(decode_responses=True)
        if FEDERATED:  # FLUSHDB is no transaction
            keys = [key for key in self.r.scan_iter(count=1000) if "pose" not in key]
            keys and self.r.delete(*keys)
        else:
            self.r.flushdb()
        # Temporal objects stay.
        self.before = self.r.dbsize()

    def tearDown(self):
        self.r.close()

    def client(self, **more):
        if FEDERATED:
            more["redis_connect_func"] = patient
        return redis.Redis(port=PORT, protocol=self.protocol, socket_timeout=BOUND, **more)

    @alone("INFO is a node's own, and there is no CLIENT LIST")
    def test_connects(self):
        self.assertTrue(self.r.ping())
        hello = self.r.execute_command("HELLO")
        hello = hello if isinstance(hello, dict) else dict(zip(hello[::2], hello[1::2]))
        self.assertEqual(hello["proto"], self.protocol)
        self.assertEqual(self.r.info()["role"], "master")
        self.assertEqual(self.r.config_get("databases"), {"databases": "1"})
        self.r.client_setname("suite")
        self.assertEqual(self.r.client_getname(), "suite")
        self.assertIn("suite", [client["name"] for client in self.r.client_list()])
        self.assertGreater(self.r.command_count(), 50)
        self.assertEqual(self.r.echo("x"), "x")

    def test_strings(self):
        r = self.r
        self.assertTrue(r.set("a", "1"))
        self.assertEqual(r.get("a"), "1")
        self.assertIsNone(r.get("none"))
        self.assertIsNone(r.set("a", "2", nx=True))
        self.assertTrue(r.set("a", "2", xx=True))
        self.assertEqual(r.set("a", "3", get=True), "2")
        self.assertTrue(r.setnx("b", "1"))
        self.assertEqual(r.append("b", "23"), 3)
        self.assertEqual(r.strlen("b"), 3)
        self.assertEqual(r.getset("b", "x"), "123")
        self.assertEqual(r.getdel("b"), "x")
        self.assertEqual(r.exists("a", "b"), 1)
        self.assertEqual(r.type("a"), "string")
        self.assertEqual(r.delete("a", "b"), 1)

    def test_counters(self):
        r = self.r
        self.assertEqual([r.incr("n"), r.incr("n", 9), r.decr("n"), r.decr("n", 4)], [1, 10, 9, 5])
        r.set("text", "x")
        with self.assertRaisesRegex(redis.ResponseError, "not an integer"):
            r.incr("text")

    def test_many_keys(self):
        r = self.r
        self.assertTrue(r.mset({"a": 1, "b": 2}))
        self.assertEqual(r.mget("a", "none", "b"), ["1", None, "2"])
        self.assertEqual(r.unlink("a", "b"), 2)

    def test_hashes(self):
        r = self.r
        self.assertEqual(r.hset("h", mapping={"f": 1, "g": "x"}), 2)
        self.assertEqual(r.hget("h", "g"), "x")
        self.assertEqual(r.hgetall("h"), {"f": "1", "g": "x"})
        self.assertEqual(r.hmget("h", "f", "none"), ["1", None])
        self.assertTrue(r.hexists("h", "f"))
        self.assertEqual((r.hdel("h", "f"), r.hlen("h")), (1, 1))
        with self.assertRaisesRegex(redis.ResponseError, "WRONGTYPE"):
            r.get("h")

    def test_terms(self):
        r = self.r
        r.set("a", 1, ex=100)
        self.assertTrue(0 < r.ttl("a") <= 100)
        self.assertTrue(r.persist("a"))
        self.assertEqual((r.ttl("a"), r.ttl("none")), (-1, -2))
        self.assertTrue(r.expire("a", 50))
        self.assertFalse(r.expire("a", 10, gt=True))
        self.assertTrue(r.pexpire("a", 1))
        while r.exists("a"):
            pass
        self.assertIsNone(r.get("a"))

    def test_scan(self):
        names = {f"key:{number}" for number in range(1000)}
        self.r.mset(dict.fromkeys(names, "x"))
        self.r.set("other", 1)
        self.assertEqual(set(self.r.scan_iter(match="key:*", count=17)), names)
        self.assertEqual(set(self.r.keys("key:*")), names)
        if not FEDERATED:  # others count there, too
            self.assertEqual(self.r.dbsize(), self.before + 1001)

    def test_transactions(self):
        r = self.r
        with r.pipeline(transaction=True) as p:
            p.set("a", 1).incr("a").get("a")
            self.assertEqual(p.execute(), [True, 2, "2"])
        with r.pipeline() as p:
            p.watch("a")
            r.set("a", 7)
            p.multi()
            p.set("a", 8)
            with self.assertRaises(redis.WatchError):
                p.execute()
        self.assertEqual(r.get("a"), "7")
        with r.pipeline() as p:
            p.set("a", "x").incr("a").get("a")
            with self.assertRaisesRegex(redis.ResponseError, "not an integer"):
                p.execute()

    def test_watch_in_a_loop(self):
        """Clients that count by WATCH, and try again: none is lost."""
        def count():
            with self.client() as r:
                for _ in range(50):
                    r.transaction(lambda p: add(p), "count")

        def add(p):
            before = int(p.get("count") or 0)
            p.multi()
            p.set("count", before + 1)

        threads = [threading.Thread(target=count) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(self.r.get("count"), "200")

    def test_channels(self):
        with self.r.pubsub() as s:
            s.subscribe("news")
            s.psubscribe("__keyspace@0__:door*")
            kinds = [s.get_message(timeout=BOUND)["type"] for _ in range(2)]
            self.assertEqual(kinds, ["subscribe", "psubscribe"])
            if FEDERATED:
                with self.assertRaisesRegex(redis.ResponseError, "PUBLISH is not taken"):
                    self.r.publish("news", "hello")
            else:
                self.assertEqual(self.r.publish("news", "hello"), 1)
                self.assertEqual(s.get_message(timeout=BOUND)["data"], "hello")
            self.r.set("door:1", "open")
            message = s.get_message(timeout=BOUND)
            self.assertEqual((message["channel"], message["data"]), ("__keyspace@0__:door:1", "set"))
            self.r.delete("door:1")
            self.assertEqual(s.get_message(timeout=BOUND)["data"], "del")
            s.unsubscribe("news")
            self.assertEqual(s.get_message(timeout=BOUND)["type"], "unsubscribe")

    def test_pipelines(self):
        with self.r.pipeline(transaction=False) as p:
            for number in range(2000):
                p.set(f"key:{number}", number)
                p.get(f"key:{number}")
            found = p.execute()
        self.assertEqual(found[::2], [True] * 2000)
        self.assertEqual(found[1::2], [str(number) for number in range(2000)])

    @alone("keys that begin with 0 are the federation's, and values have 128 KiB")
    def test_any_bytes_and_long_values(self):
        with self.client() as r:
            key, value = bytes(range(256)), bytes(range(256)) * 4
            self.assertTrue(r.set(key, value))
            self.assertEqual((r.get(key), r.keys(b"\0*")), (value, [key]))
            long = os.urandom(8 << 20)
            r.set("long", long)
            self.assertEqual(r.get("long"), long)
            r.hset("h", key, value)
            self.assertEqual(r.hgetall("h"), {key: value})

    def test_errors(self):
        r = self.r
        for asked, told in [
            (("NOPE",), "unknown command"),
            (("GET",), "wrong number of arguments"),
            (("SET", "a", "1", "EX", "0"), "invalid expire time"),
            (("SET", "k" * 600, "1"), "a key has 1 to 5[01][01] bytes"),
        ]:
            with self.assertRaisesRegex(redis.ResponseError, told):
                r.execute_command(*asked)
        self.assertTrue(r.ping())

    def test_deadlines_and_ages(self):
        r = self.r
        self.assertEqual(r.execute_command("DEADLINE", 60000, "SET", "a", 1), "OK")
        r.mset({f"key:{number}": "x" for number in range(10000)})
        with r.pipeline(transaction=False) as p:
            for _ in range(40):
                p.execute_command("KEYS", "none*")
            p.execute_command("DEADLINE", 1, "GET", "a")
            found = p.execute(raise_on_error=False)[-1]
        self.assertIsInstance(found, redis.ResponseError)
        self.assertRegex(str(found), "^LATE reason=expired retry-after-ms=")
        self.assertTrue(r.execute_command("TSET", f"pose{self.protocol}", "1", "AGE", 5))
        self.assertEqual(r.execute_command("GETFRESH", f"pose{self.protocol}", 3600000)[0], "1")
        with self.assertRaisesRegex(redis.ResponseError, "^STALE age-ms="):
            r.execute_command("GETFRESH", f"pose{self.protocol}", 0)

    @alone("that server is a store")
    def test_users_and_tls(self):
        def client(**more):
            options = {"username": USER, "password": PASSWORD, "ssl": True, "ssl_ca_certs": os.environ["CLIENTS_CA"]}
            options |= {"protocol": self.protocol, "decode_responses": True, "socket_timeout": BOUND} | more
            return redis.Redis(host="localhost", port=TLS_PORT, **options)

        with client() as r:
            self.assertTrue(r.set("robot/a", 1))
            self.assertEqual((r.get("robot/a"), r.acl_whoami()), ("1", USER))
            with self.assertRaises(redis.exceptions.NoPermissionError):
                r.get("other/a")
            long = "x" * (4 << 20)
            r.set("robot/long", long)
            self.assertEqual(r.get("robot/long"), long)
        with client(password="wrong") as r, self.assertRaises(redis.exceptions.AuthenticationError):
            r.ping()
        with client(username=None, password=None) as r, self.assertRaises(redis.exceptions.AuthenticationError):
            r.get("robot/a")

    @alone("tested with the program's own faults")
    def test_connects_again_after_a_restart(self):
        self.r.set("kept", "yes")
        subprocess.run(os.environ["CLIENTS_RESTART"].split(), check=True, timeout=BOUND)
        self.assertEqual(self.r.get("kept"), "yes")


class Two(Suite, unittest.TestCase):
    protocol = 2


class Three(Suite, unittest.TestCase):
    protocol = 3


if __name__ == "__main__":
    print("redis-py", redis.__version__)
    unittest.main()
