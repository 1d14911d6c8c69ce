// SPDX-License-Identifier: Apache-2.0
// hello_server PORT CERTIFICATE KEY: HTTPS that takes keys of P-384 alone.
package main

import (
	"crypto/tls"
	"fmt"
	"net/http"
	"os"
)

func main() {
	server := &http.Server{
		Addr:      ":" + os.Args[1],
		TLSConfig: &tls.Config{CurvePreferences: []tls.CurveID{tls.CurveP384}},
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			fmt.Fprintln(w, "served", r.TLS.ServerName)
		}),
	}
	fmt.Fprintln(os.Stderr, server.ListenAndServeTLS(os.Args[2], os.Args[3]))
	os.Exit(1)
}
