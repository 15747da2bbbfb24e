// bank moves money from one account to another by the published Go client of dtm, and by nothing else of dtm's.
//
//	bank serve           answers check-backs and branches; tells its addresses in one line of JSON
//	bank transfer ORDER   makes one transfer, as a producer; tells in one line of JSON how it ended
//
// Which databases there are is in the environment: BANK_MYSQL, BANK_POSTGRES (data source names), BANK_REDIS (a URL).
// The tests kill it with SIGKILL where it says that it holds.
package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
)

func main() {
	if len(os.Args) < 2 {
		fail(fmt.Errorf("serve or transfer is wanted"))
	}
	shelf, err := openShelf()
	if err != nil {
		fail(err)
	}
	switch os.Args[1] {
	case "serve":
		err = serve(shelf)
	case "transfer":
		var w order
		if err = json.Unmarshal([]byte(os.Args[2]), &w); err == nil {
			err = transfer(shelf, w)
		}
	default:
		err = fmt.Errorf("%s is no command", os.Args[1])
	}
	if err != nil {
		fail(err)
	}
}

// say writes one line that the tests read.
func say(line interface{}) {
	text, err := json.Marshal(line)
	if err != nil {
		fail(err)
	}
	os.Stdout.Write(append(text, '\n'))
}

// hold tells how far the transfer has come, and waits to be killed.
func hold(where string) {
	say(map[string]string{"holds": where})
	endWithTheTest()
	os.Exit(1)
}

// endWithTheTest returns when whoever started this process is gone: our standard input is a pipe from there.
func endWithTheTest() {
	_, _ = io.Copy(io.Discard, os.Stdin)
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}
