// Checks histories of a simulated federation, and of threads that use one store, with porcupine, a linearizability
// checker that is not ours.
//
// Each line of the standard input is a request as `punctual-lab cluster sim --export requests` and the example
// `histories` of `punctual-engines` write it. One history ends where a line says {"history": SEED}. The object is the
// whole store: a transaction over several keys, and a query that asks for the latest revision, are one operation on it.
// Plain queries may see the past and are left out, as are requests that were refused. A request without an answer
// happened at any time after it was sent, if the log has it. The log is not trusted with more than that: were it wrong,
// a read would show what no request wrote, or miss what one did.
//
// Ends with 1 at the first history that is not linearizable, with 3 where the checker gave up in time.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"time"

	"github.com/anishathalye/porcupine"
)

// The longest time for one history.
const patience = 60 * time.Second

// The longest line, in bytes.
const lineMax = 16 << 20

type operation struct {
	Op    string  `json:"op"`
	Key   string  `json:"key"`
	Value *string `json:"value"`
	Seen  *string `json:"seen"`
}

type line struct {
	History    *uint64     `json:"history"`
	Client     int         `json:"client"`
	Kind       string      `json:"kind"`
	Outcome    string      `json:"outcome"`
	Invoked    int64       `json:"invoked_ns"`
	Returned   *int64      `json:"returned_ns"`
	InLog      *bool       `json:"in_log"`
	Operations []operation `json:"operations"`
}

// What is known of how a request ended.
type ending struct {
	known  bool
	undone bool
}

type store map[string]string

// Whether the request could have been executed here, and what the store is afterwards.
func execute(before store, request []operation, end ending) (bool, store) {
	after := store{}
	for key, value := range before {
		after[key] = value
	}
	for _, step := range request {
		value, there := after[step.Key]
		switch step.Op {
		case "get":
			if end.known && !end.undone && (there != (step.Seen != nil) || there && value != *step.Seen) {
				return false, nil
			}
		case "put":
			after[step.Key] = *step.Value
		case "append":
			after[step.Key] = value + *step.Value
		case "delete":
			delete(after, step.Key)
		case "expect":
			if there != (step.Value != nil) || there && value != *step.Value {
				// The transaction undoes itself here.
				return !end.known || end.undone, before
			}
		default:
			fmt.Fprintf(os.Stderr, "unknown operation %q: this checker is older than the history\n", step.Op)
			os.Exit(2)
		}
	}
	return !end.known || !end.undone, after
}

func model() porcupine.Model {
	return porcupine.Model{
		Init: func() interface{} { return store{} },
		Step: func(state, input, output interface{}) (bool, interface{}) {
			return execute(state.(store), input.([]operation), output.(ending))
		},
		Equal: func(one, other interface{}) bool {
			a, b := one.(store), other.(store)
			if len(a) != len(b) {
				return false
			}
			for key, value := range a {
				if found, there := b[key]; !there || found != value {
					return false
				}
			}
			return true
		},
	}
}

// The request as porcupine wants it; false for one that is not to be checked.
func checked(read line) (porcupine.Operation, bool) {
	if read.Kind != "transaction" && read.Kind != "latest" {
		return porcupine.Operation{}, false
	}
	end := ending{known: true, undone: read.Outcome == "undone"}
	returned := int64(math.MaxInt64)
	switch read.Outcome {
	case "answer", "undone":
		if read.Returned != nil {
			returned = *read.Returned
		}
	case "unknown":
		if read.Kind != "transaction" || read.InLog != nil && !*read.InLog {
			return porcupine.Operation{}, false
		}
		end.known = false
	default:
		return porcupine.Operation{}, false
	}
	return porcupine.Operation{
		ClientId: read.Client,
		Input:    read.Operations,
		Call:     read.Invoked,
		Output:   end,
		Return:   returned,
	}, true
}

func main() {
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(make([]byte, 0, 1<<20), lineMax)
	var requests []porcupine.Operation
	histories, all := 0, 0
	for lines.Scan() {
		var read line
		if err := json.Unmarshal(lines.Bytes(), &read); err != nil {
			fmt.Fprintf(os.Stderr, "line %q: %v\n", lines.Text(), err)
			os.Exit(2)
		}
		if read.History == nil {
			if request, ok := checked(read); ok {
				requests = append(requests, request)
			}
			continue
		}
		switch porcupine.CheckOperationsTimeout(model(), requests, patience) {
		case porcupine.Illegal:
			fmt.Printf("seed %d: its %d requests are not linearizable\n", *read.History, len(requests))
			os.Exit(1)
		case porcupine.Unknown:
			fmt.Printf("seed %d: no answer within %v for %d requests\n", *read.History, patience, len(requests))
			os.Exit(3)
		}
		histories, all = histories+1, all+len(requests)
		requests = nil
	}
	if err := lines.Err(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	fmt.Printf("%d histories with %d requests are linearizable\n", histories, all)
}
