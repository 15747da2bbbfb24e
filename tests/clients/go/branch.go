package main

import (
	"fmt"
	"sync"
	"time"

	"github.com/dtm-labs/client/dtmcli"
)

// incoming is the payload of a branch call.
type incoming struct {
	Amount   int `json:"amount"`
	Refusals int `json:"refusals"` // refuse so many calls before taking the money
	Meet     int `json:"meet"`     // answer only when so many calls of this message are here at once
}

const meetsWithin = 2 * time.Second

// branches takes money in, and remembers what a test wants of which message.
type branches struct {
	shelf   shelf
	lock    sync.Mutex
	refused map[string]int
	present map[string]int
	changed *sync.Cond
}

func newBranches(s shelf) *branches {
	made := &branches{shelf: s, refused: map[string]int{}, present: map[string]int{}}
	made.changed = sync.NewCond(&made.lock)
	return made
}

// take is one branch call, in whichever protocol it came.
func (b *branches) take(store string, bb *dtmcli.BranchBarrier, in incoming) error {
	own, err := b.shelf.named(store)
	if err != nil {
		return err
	}
	if b.refuses(bb.Gid+bb.BranchID, in.Refusals) {
		return dtmcli.ErrFailure
	}
	if err := b.meets(bb.Gid, in.Meet); err != nil {
		return err
	}
	return own.enter(bb, entry{bb.Gid, payee, in.Amount}, func(func() error) error { return nil })
}

// check is one check-back.
func (b *branches) check(store string, bb *dtmcli.BranchBarrier) error {
	own, err := b.shelf.named(store)
	if err != nil {
		return err
	}
	return own.asked(bb)
}

func (b *branches) refuses(call string, refusals int) bool {
	b.lock.Lock()
	defer b.lock.Unlock()
	if b.refused[call] >= refusals {
		return false
	}
	b.refused[call]++
	return true
}

func (b *branches) meets(gid string, wanted int) error {
	if wanted == 0 {
		return nil
	}
	b.lock.Lock()
	defer b.lock.Unlock()
	b.present[gid]++
	b.changed.Broadcast()
	given := time.AfterFunc(meetsWithin, b.changed.Broadcast)
	defer given.Stop()
	for deadline := time.Now().Add(meetsWithin); b.present[gid] < wanted; b.changed.Wait() {
		if time.Now().After(deadline) {
			b.present[gid]--
			return fmt.Errorf("%d calls of %s were to be here at once", wanted, gid)
		}
	}
	return nil
}
