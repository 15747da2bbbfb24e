package main

import (
	"database/sql"
	"fmt"
	"os"

	"github.com/dtm-labs/client/dtmcli"
	"github.com/go-redis/redis/v8"
	_ "github.com/go-sql-driver/mysql"
	_ "github.com/lib/pq"
)

const (
	payer            = "payer"
	payee            = "payee"
	barrierExpiresIn = 86400 // seconds
)

// entry is one side of a transfer.
type entry struct {
	gid     string
	account string
	amount  int
}

// books is where one database keeps accounts, behind the client's own barrier.
type books interface {
	// enter writes an entry in one local transaction with the barrier's row; inside runs before the commit.
	enter(bb *dtmcli.BranchBarrier, e entry, inside func(sever func() error) error) error
	// asked answers a check-back.
	asked(bb *dtmcli.BranchBarrier) error
}

// shelf is all books there are, by the name that stands in addresses.
type shelf map[string]books

func openShelf() (shelf, error) {
	found := shelf{}
	for _, one := range []struct{ name, driver, variable string }{
		{"mysql", "mysql", "BANK_MYSQL"},
		{"postgres", "postgres", "BANK_POSTGRES"},
	} {
		source := os.Getenv(one.variable)
		if source == "" {
			continue
		}
		db, err := sql.Open(one.driver, source)
		if err != nil {
			return nil, err
		}
		found[one.name] = &sqlBooks{db: db, kind: one.driver}
	}
	if url := os.Getenv("BANK_REDIS"); url != "" {
		options, err := redis.ParseURL(url)
		if err != nil {
			return nil, err
		}
		found["redis"] = &redisBooks{client: redis.NewClient(options)}
	}
	return found, nil
}

type sqlBooks struct {
	db   *sql.DB
	kind string
}

var insertEntry = map[string]string{
	"mysql":    "insert into movement(gid, account, amount) values (?, ?, ?)",
	"postgres": "insert into movement(gid, account, amount) values ($1, $2, $3)",
}

func (b *sqlBooks) enter(bb *dtmcli.BranchBarrier, e entry, inside func(func() error) error) error {
	bb.DBType = b.kind
	return bb.CallWithDB(b.db, func(tx *sql.Tx) error {
		if _, err := tx.Exec(insertEntry[b.kind], e.gid, e.account, e.amount); err != nil {
			return err
		}
		return inside(func() error { return b.sever(tx) })
	})
}

func (b *sqlBooks) asked(bb *dtmcli.BranchBarrier) error {
	bb.DBType = b.kind
	return bb.QueryPrepared(b.db)
}

// sever lets the database end a transaction's connection, so that its commit fails.
func (b *sqlBooks) sever(tx *sql.Tx) error {
	ask, end := "select connection_id()", "kill %d"
	if b.kind == "postgres" {
		ask, end = "select pg_backend_pid()", "select pg_terminate_backend(%d)"
	}
	var connection int64
	if err := tx.QueryRow(ask).Scan(&connection); err != nil {
		return err
	}
	_, err := b.db.Exec(fmt.Sprintf(end, connection))
	return err
}

// redisBooks keeps an account as a number under the key `gid:account`, as dtm's Redis barrier wants it.
type redisBooks struct {
	client *redis.Client
}

func (b *redisBooks) enter(bb *dtmcli.BranchBarrier, e entry, inside func(func() error) error) error {
	err := inside(func() error { return fmt.Errorf("redis has no transaction to sever") })
	if err != nil {
		return err
	}
	return bb.RedisCheckAdjustAmount(b.client, e.gid+":"+e.account, e.amount, barrierExpiresIn)
}

func (b *redisBooks) asked(bb *dtmcli.BranchBarrier) error {
	return bb.RedisQueryPrepared(b.client, barrierExpiresIn)
}

func (s shelf) named(name string) (books, error) {
	found, ok := s[name]
	if !ok {
		return nil, fmt.Errorf("no database is named %q here", name)
	}
	return found, nil
}
