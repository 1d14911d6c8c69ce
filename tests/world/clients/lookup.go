// SPDX-License-Identifier: Apache-2.0

// lookup NAME… - Go's own resolver; one line per name, as lookup.c prints it.
package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"time"
)

func main() {
	resolver := net.Resolver{PreferGo: true}
	for _, name := range os.Args[1:] {
		from := time.Now()
		found, err := resolver.LookupHost(context.Background(), name)
		fmt.Print(time.Since(from).Milliseconds())
		if err != nil {
			fmt.Print(" failed")
		}
		for _, address := range found {
			fmt.Print(" ", address)
		}
		fmt.Println()
	}
}
