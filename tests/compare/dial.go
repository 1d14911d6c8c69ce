// SPDX-License-Identifier: Apache-2.0
// dial HOST:PORT: says a word and prints what comes back; a program with its own socket, which knows no proxy.
package main

import (
	"fmt"
	"net"
	"os"
)

func main() {
	buffer := make([]byte, 64)
	conn, err := net.Dial("tcp", os.Args[1])
	if err == nil {
		conn.Write([]byte("heard"))
		var n int
		n, err = conn.Read(buffer)
		fmt.Println(string(buffer[:n]))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
