// What a user of go-redis does, against `punctual serve`, or a node or a balancer of a federation (CLIENTS_AT). Run by
// .ci/clients, which says where the servers are.
package clients

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// Far longer than anything here takes on a busy machine.
const bound = 2 * time.Minute

var ctx = context.Background()

// On a federation some things are not, and are skipped with the reason.
var federated = os.Getenv("CLIENTS_AT") == "node" || os.Getenv("CLIENTS_AT") == "balancer"

func alone(t *testing.T, reason string) {
	if federated {
		t.Skip(reason)
	}
}

// A request to a federation has a second unless its client says otherwise: too little on a busy machine.
func patient(ctx context.Context, c *redis.Conn) error {
	return c.Do(ctx, "CLIENT", "DEADLINE", bound.Milliseconds()).Err()
}

// Removes all but temporal objects; FLUSHDB is no transaction of a federation.
func empty(t *testing.T, r *redis.Client) {
	if !federated {
		fine(t, r.FlushDB(ctx).Err())
		return
	}
	var keys []string
	each := r.Scan(ctx, 0, "*", 1000).Iterator()
	for each.Next(ctx) {
		if !strings.Contains(each.Val(), "pose") {
			keys = append(keys, each.Val())
		}
	}
	fine(t, each.Err())
	if len(keys) > 0 {
		fine(t, r.Del(ctx, keys...).Err())
	}
}

func options(protocol int) *redis.Options {
	options := &redis.Options{
		Addr:         "127.0.0.1:" + os.Getenv("CLIENTS_PORT"),
		Protocol:     protocol,
		ReadTimeout:  bound,
		WriteTimeout: bound,
	}
	if federated {
		options.OnConnect = patient
	}
	return options
}

// Runs a test by each protocol, with an empty store.
func each(t *testing.T, test func(t *testing.T, r *redis.Client)) {
	for _, protocol := range []int{2, 3} {
		t.Run(fmt.Sprint("resp", protocol), func(t *testing.T) {
			r := redis.NewClient(options(protocol))
			defer r.Close()
			empty(t, r)
			test(t, r)
		})
	}
}

func fine(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func is[T comparable](t *testing.T, err error, found, expected T) {
	t.Helper()
	fine(t, err)
	if found != expected {
		t.Fatalf("found %v, expected %v", found, expected)
	}
}

func refused(t *testing.T, err error, begin string) {
	t.Helper()
	if err == nil || !strings.HasPrefix(err.Error(), begin) {
		t.Fatalf("found %v, expected %s", err, begin)
	}
}

func TestConnects(t *testing.T) {
	alone(t, "INFO is a node's own")
	each(t, func(t *testing.T, r *redis.Client) {
		pong, err := r.Ping(ctx).Result()
		is(t, err, pong, "PONG")
		id, err := r.ClientID(ctx).Result()
		is(t, err, id > 0, true)
		info, err := r.Info(ctx, "replication").Result()
		is(t, err, strings.Contains(info, "role:master"), true)
		commands, err := r.Command(ctx).Result()
		is(t, err, commands["get"].Name, "get")
		config, err := r.ConfigGet(ctx, "databases").Result()
		is(t, err, config["databases"], "1")
	})
}

func TestStrings(t *testing.T) {
	each(t, func(t *testing.T, r *redis.Client) {
		fine(t, r.Set(ctx, "a", 1, 0).Err())
		a, err := r.Get(ctx, "a").Int()
		is(t, err, a, 1)
		if err := r.Get(ctx, "none").Err(); !errors.Is(err, redis.Nil) {
			t.Fatal(err)
		}
		is(t, nil, r.SetNX(ctx, "a", 2, 0).Val(), false)
		is(t, nil, r.SetXX(ctx, "a", 2, time.Minute).Val(), true)
		left, err := r.TTL(ctx, "a").Result()
		is(t, err, left > 0 && left <= time.Minute, true)
		is(t, nil, r.Append(ctx, "b", "xyz").Val(), 3)
		is(t, nil, r.StrLen(ctx, "b").Val(), 3)
		is(t, nil, r.GetSet(ctx, "b", "new").Val(), "xyz")
		is(t, nil, r.GetDel(ctx, "b").Val(), "new")
		is(t, nil, r.Exists(ctx, "a", "b").Val(), 1)
		is(t, nil, r.Type(ctx, "a").Val(), "string")
		is(t, nil, r.Del(ctx, "a", "b").Val(), 1)
	})
}

func TestCountersAndManyKeys(t *testing.T) {
	each(t, func(t *testing.T, r *redis.Client) {
		is(t, nil, r.Incr(ctx, "n").Val(), 1)
		is(t, nil, r.IncrBy(ctx, "n", 9).Val(), 10)
		is(t, nil, r.DecrBy(ctx, "n", 4).Val(), 6)
		fine(t, r.MSet(ctx, "a", 1, "b", "x").Err())
		found, err := r.MGet(ctx, "a", "none", "b").Result()
		is(t, err, fmt.Sprint(found), "[1 <nil> x]")
		refused(t, r.Incr(ctx, "b").Err(), "ERR value is not an integer")
	})
}

func TestHashes(t *testing.T) {
	each(t, func(t *testing.T, r *redis.Client) {
		is(t, nil, r.HSet(ctx, "h", "f", 1, "g", "x").Val(), 2)
		all, err := r.HGetAll(ctx, "h").Result()
		is(t, err, fmt.Sprint(all), "map[f:1 g:x]")
		var scanned struct {
			F int    `redis:"f"`
			G string `redis:"g"`
		}
		fine(t, r.HMGet(ctx, "h", "f", "g").Scan(&scanned))
		is(t, nil, scanned.F, 1)
		is(t, nil, r.HDel(ctx, "h", "f").Val(), 1)
		is(t, nil, r.HLen(ctx, "h").Val(), 1)
		is(t, nil, r.HExists(ctx, "h", "g").Val(), true)
		refused(t, r.Get(ctx, "h").Err(), "WRONGTYPE ")
	})
}

func TestTermsAndScan(t *testing.T) {
	each(t, func(t *testing.T, r *redis.Client) {
		fine(t, r.Set(ctx, "a", 1, time.Hour).Err())
		is(t, nil, r.Persist(ctx, "a").Val(), true)
		is(t, nil, r.TTL(ctx, "a").Val(), time.Duration(-1))
		is(t, nil, r.Expire(ctx, "a", time.Minute).Val(), true)
		is(t, nil, r.ExpireGT(ctx, "a", time.Second).Val(), false)
		is(t, nil, r.PExpire(ctx, "a", time.Millisecond).Val(), true)
		for r.Exists(ctx, "a").Val() == 1 {
		}
		before := r.DBSize(ctx).Val() // temporal objects stay
		var pairs []any
		for number := range 1000 {
			pairs = append(pairs, fmt.Sprint("key:", number), "x")
		}
		fine(t, r.MSet(ctx, pairs...).Err())
		var keys []string
		each := r.Scan(ctx, 0, "key:*", 17).Iterator()
		for each.Next(ctx) {
			keys = append(keys, each.Val())
		}
		fine(t, each.Err())
		slices.Sort(keys)
		is(t, nil, len(slices.Compact(keys)), 1000)
		if !federated { // others count there, too
			is(t, nil, r.DBSize(ctx).Val(), before+1000)
		}
	})
}

func TestTransactions(t *testing.T) {
	each(t, func(t *testing.T, r *redis.Client) {
		found, err := r.TxPipelined(ctx, func(p redis.Pipeliner) error {
			p.Set(ctx, "a", 1, 0)
			p.Incr(ctx, "a")
			p.Get(ctx, "a")
			return nil
		})
		is(t, err, found[2].(*redis.StringCmd).Val(), "2")
		err = r.Watch(ctx, func(tx *redis.Tx) error {
			r.Set(ctx, "a", 7, 0)
			_, err := tx.TxPipelined(ctx, func(p redis.Pipeliner) error { return p.Set(ctx, "a", 8, 0).Err() })
			return err
		}, "a")
		if !errors.Is(err, redis.TxFailedErr) {
			t.Fatal(err)
		}
		is(t, nil, r.Get(ctx, "a").Val(), "7")
	})
}

// Clients that count by WATCH, and try again: none is lost.
func TestWatchInALoop(t *testing.T) {
	each(t, func(t *testing.T, r *redis.Client) {
		add := func(tx *redis.Tx) error {
			before, err := tx.Get(ctx, "count").Int()
			if err != nil && !errors.Is(err, redis.Nil) {
				return err
			}
			_, err = tx.TxPipelined(ctx, func(p redis.Pipeliner) error { return p.Set(ctx, "count", before+1, 0).Err() })
			return err
		}
		var all sync.WaitGroup
		for range 4 {
			all.Add(1)
			go func() {
				defer all.Done()
				for range 50 {
					var err error = redis.TxFailedErr
					for errors.Is(err, redis.TxFailedErr) {
						err = r.Watch(ctx, add, "count")
					}
					if err != nil {
						t.Error(err)
					}
				}
			}()
		}
		all.Wait()
		is(t, nil, r.Get(ctx, "count").Val(), "200")
	})
}

func TestChannels(t *testing.T) {
	each(t, func(t *testing.T, r *redis.Client) {
		s := r.PSubscribe(ctx, "__keyspace@0__:door*")
		defer s.Close()
		fine(t, s.Subscribe(ctx, "news"))
		for range 2 {
			_, err := s.ReceiveTimeout(ctx, bound)
			fine(t, err)
		}
		heard := []string{"hello", "set", "del"}
		if federated {
			refused(t, r.Publish(ctx, "news", "hello").Err(), "ERR PUBLISH is not taken")
			heard = heard[1:]
		} else {
			is(t, nil, r.Publish(ctx, "news", "hello").Val(), 1)
		}
		fine(t, r.Set(ctx, "door:1", "open", 0).Err())
		fine(t, r.Del(ctx, "door:1").Err())
		for _, expected := range heard {
			message, err := s.ReceiveMessage(ctx)
			is(t, err, message.Payload, expected)
		}
	})
}

func TestPipelines(t *testing.T) {
	each(t, func(t *testing.T, r *redis.Client) {
		found, err := r.Pipelined(ctx, func(p redis.Pipeliner) error {
			for number := range 2000 {
				p.Set(ctx, fmt.Sprint("key:", number), number, 0)
				p.Get(ctx, fmt.Sprint("key:", number))
			}
			return nil
		})
		fine(t, err)
		for number := range 2000 {
			is(t, nil, found[2*number+1].(*redis.StringCmd).Val(), strconv.Itoa(number))
		}
	})
}

func TestAnyBytesAndLongValues(t *testing.T) {
	alone(t, "keys that begin with 0 are the federation's, and values have 128 KiB")
	each(t, func(t *testing.T, r *redis.Client) {
		var key []byte
		for b := range 256 {
			key = append(key, byte(b))
		}
		long := bytes.Repeat(key, 8<<12)
		fine(t, r.Set(ctx, string(key), long, 0).Err())
		found, err := r.Get(ctx, string(key)).Bytes()
		is(t, err, bytes.Equal(found, long), true)
	})
}

func TestErrors(t *testing.T) {
	each(t, func(t *testing.T, r *redis.Client) {
		refused(t, r.Do(ctx, "NOPE").Err(), "ERR unknown command")
		refused(t, r.Do(ctx, "GET").Err(), "ERR wrong number of arguments")
		refused(t, r.Set(ctx, strings.Repeat("k", 600), 1, 0).Err(), "ERR a key has 1 to 5")
		fine(t, r.Ping(ctx).Err())
	})
}

func TestDeadlinesAndAges(t *testing.T) {
	each(t, func(t *testing.T, r *redis.Client) {
		fine(t, r.Do(ctx, "DEADLINE", 60000, "SET", "a", 1).Err())
		var pairs []any
		for number := range 10000 {
			pairs = append(pairs, fmt.Sprint("key:", number), "x")
		}
		fine(t, r.MSet(ctx, pairs...).Err())
		var last *redis.Cmd
		_, err := r.Pipelined(ctx, func(p redis.Pipeliner) error {
			for range 40 {
				p.Do(ctx, "KEYS", "none*")
			}
			last = p.Do(ctx, "DEADLINE", 1, "GET", "a")
			return nil
		})
		refused(t, err, "LATE reason=expired retry-after-ms=")
		refused(t, last.Err(), "LATE ")
		var told redis.Error
		is(t, nil, errors.As(last.Err(), &told), true)
		fine(t, r.Do(ctx, "TSET", "gopose", 1, "AGE", 5).Err())
		refused(t, r.Do(ctx, "GETFRESH", "gopose", 0).Err(), "STALE age-ms=")
	})
}

func TestUsersAndTls(t *testing.T) {
	alone(t, "that server is a store")
	authority, err := os.ReadFile(os.Getenv("CLIENTS_CA"))
	fine(t, err)
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(authority)
	for _, protocol := range []int{2, 3} {
		guarded := options(protocol)
		guarded.Addr = "localhost:" + os.Getenv("CLIENTS_TLS_PORT")
		guarded.TLSConfig = &tls.Config{RootCAs: pool}
		guarded.Username, guarded.Password = os.Getenv("CLIENTS_USER"), os.Getenv("CLIENTS_PASSWORD")
		r := redis.NewClient(guarded)
		fine(t, r.Set(ctx, "robot/a", 1, 0).Err())
		is(t, nil, r.Get(ctx, "robot/a").Val(), "1")
		refused(t, r.Get(ctx, "other/a").Err(), "NOPERM ")
		long := strings.Repeat("x", 4<<20)
		fine(t, r.Set(ctx, "robot/long", long, 0).Err())
		is(t, nil, r.Get(ctx, "robot/long").Val() == long, true)
		r.Close()
		guarded.Password = "wrong"
		r = redis.NewClient(guarded)
		refused(t, r.Ping(ctx).Err(), "WRONGPASS ")
		r.Close()
	}
}

func TestConnectsAgainAfterARestart(t *testing.T) {
	alone(t, "tested with the program's own faults")
	each(t, func(t *testing.T, r *redis.Client) {
		fine(t, r.Set(ctx, "kept", "yes", 0).Err())
		restart := strings.Fields(os.Getenv("CLIENTS_RESTART"))
		fine(t, exec.Command(restart[0], restart[1:]...).Run())
		kept, err := r.Get(ctx, "kept").Result()
		is(t, err, kept, "yes")
	})
}
