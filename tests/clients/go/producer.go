package main

import (
	"context"
	"encoding/json"
	"errors"
	"strings"

	"github.com/dtm-labs/client/dtmcli"
	"github.com/dtm-labs/client/dtmcli/dtmimp"
	"github.com/dtm-labs/client/dtmgrpc"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// order is what a test wants of one transfer.
type order struct {
	Server   string `json:"server"`
	Token    string `json:"token"`    // of gRPC, which has no base URL; empty: none
	Protocol string `json:"protocol"` // http, json-rpc, grpc
	Store    string `json:"store"`
	Gid      string `json:"gid"` // empty: the server makes one
	Check    string `json:"check"`
	Steps    []step `json:"steps"`
	Amount   int    `json:"amount"`
	Ending   string `json:"ending"`

	WaitResult    bool              `json:"wait_result"`
	Concurrent    bool              `json:"concurrent"`
	Delay         uint64            `json:"delay"`
	TimeoutToFail int64             `json:"timeout_to_fail"`
	Headers       map[string]string `json:"headers"`
}

// step is one branch: an address, or a topic.
type step struct {
	Action  string   `json:"action"`
	Topic   string   `json:"topic"`
	Payload incoming `json:"payload"`
}

// told is how a transfer ended for the producer.
type told struct {
	Gid   string `json:"gid"`
	Error string `json:"error"`
}

var errNoMoney = errors.New("there is no money")

func transfer(s shelf, w order) error {
	own, err := s.named(w.Store)
	if err != nil {
		return err
	}
	if w.Token != "" {
		dtmgrpc.AddUnaryInterceptor(withToken(w.Token))
	}
	if w.Gid == "" && w.Protocol == "grpc" {
		w.Gid = dtmgrpc.MustGenGid(w.Server)
	} else if w.Gid == "" {
		w.Gid = dtmcli.MustGenGid(w.Server)
	}
	answer := told{Gid: w.Gid}
	if err := send(w, func(bb *dtmcli.BranchBarrier) error { return pay(own, bb, w) }); err != nil {
		answer.Error = err.Error()
	}
	say(answer)
	return nil
}

// withToken adds the token to the calls of the server; those of services do not get it.
func withToken(token string) grpc.UnaryClientInterceptor {
	return func(ctx context.Context, method string, req, reply interface{}, conn *grpc.ClientConn,
		invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		if strings.HasPrefix(method, "/dtmgimp.Dtm/") {
			ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+token)
		}
		return invoke(ctx, method, req, reply, conn, opts...)
	}
}

// send is the client's whole sequence around the local transaction `work`.
func send(w order, work func(*dtmcli.BranchBarrier) error) error {
	if w.Protocol == "grpc" {
		message := dtmgrpc.NewMsgGrpc(w.Server, w.Gid)
		for _, one := range w.Steps {
			text, err := json.Marshal(one.Payload)
			if err != nil {
				return err
			}
			if one.Topic != "" {
				message.AddTopic(one.Topic, wrapperspb.String(string(text)))
			} else {
				message.Add(one.Action, wrapperspb.String(string(text)))
			}
		}
		choose(&message.TransBase, w)
		message.SetDelay(w.Delay)
		return message.DoAndSubmit(w.Check, work)
	}
	message := dtmcli.NewMsg(w.Server, w.Gid)
	for _, one := range w.Steps {
		if one.Topic != "" {
			message.AddTopic(one.Topic, one.Payload)
		} else {
			message.Add(one.Action, one.Payload)
		}
	}
	choose(&message.TransBase, w)
	if w.Protocol == dtmimp.Jrpc {
		message.Protocol = w.Protocol
	}
	message.SetDelay(w.Delay)
	return message.DoAndSubmit(w.Check, work)
}

func choose(base *dtmimp.TransBase, w order) {
	base.WaitResult = w.WaitResult
	base.Concurrent = w.Concurrent
	base.TimeoutToFail = w.TimeoutToFail
	base.BranchHeaders = w.Headers
}

// pay is the local transaction: it takes the money, and goes wrong where the order says so.
func pay(own books, bb *dtmcli.BranchBarrier, w order) error {
	if w.Ending == "asked first" {
		if err := own.asked(bb); !errors.Is(err, dtmcli.ErrFailure) {
			return err
		}
	}
	err := own.enter(bb, entry{w.Gid, payer, -w.Amount}, func(sever func() error) error {
		switch w.Ending {
		case "business error":
			return errNoMoney
		case "failure":
			return dtmcli.ErrFailure
		case "hold before commit":
			hold("before commit")
		case "commit fails":
			return sever()
		}
		return nil
	})
	if err == nil && w.Ending == "hold after commit" {
		hold("after commit")
	}
	if err == nil && w.Ending == "error after commit" {
		return errors.New("the commit is said to have failed")
	}
	return err
}
