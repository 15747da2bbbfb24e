//go:build tools

// Package h2spec pins the public conformance tests of HTTP/2, so that `go build` finds the same program everywhere.
package h2spec

import _ "github.com/summerwind/h2spec/cmd/h2spec"
