// An etcd of the version that go.mod names. `go install` refuses the server's own module, because that replaces others.
package main

import (
	"os"

	"go.etcd.io/etcd/server/v3/etcdmain"
)

func main() {
	etcdmain.Main(os.Args)
}
