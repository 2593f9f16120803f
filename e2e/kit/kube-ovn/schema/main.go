// Prints one of the two OVN database schemas that this release of Kube-OVN was generated from.
// Debian's own schema files are older than what its client asks for.
package main

import (
	"encoding/json"
	"fmt"
	"os"

	"github.com/kubeovn/kube-ovn/pkg/ovsdb/ovnnb"
	"github.com/kubeovn/kube-ovn/pkg/ovsdb/ovnsb"
)

func main() {
	schema := ovnnb.Schema()
	if len(os.Args) > 1 && os.Args[1] == "sb" {
		schema = ovnsb.Schema()
	}
	if err := json.NewEncoder(os.Stdout).Encode(schema); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
