package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"

	"github.com/dtm-labs/client/dtmcli"
	"github.com/dtm-labs/client/dtmgrpc"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// A check-back of twophase's own client is answered in a header too: status and body could be a proxy's.
const verdictHeader = "x-twophase-verdict"

func serve(s shelf) error {
	own := newBranches(s)
	overHTTP, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	overGrpc, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	server := grpc.NewServer()
	mux := http.NewServeMux()
	for store := range s {
		own.route(mux, store)
		server.RegisterService(own.described(store), nil)
	}
	ended := make(chan error)
	go func() { ended <- http.Serve(overHTTP, mux) }()
	go func() { ended <- server.Serve(overGrpc) }()
	go func() { endWithTheTest(); ended <- nil }()
	say(map[string]string{"http": "http://" + overHTTP.Addr().String(), "grpc": overGrpc.Addr().String()})
	return <-ended
}

func (b *branches) route(mux *http.ServeMux, store string) {
	mux.HandleFunc("/"+store+"/in", func(w http.ResponseWriter, r *http.Request) {
		var in incoming
		err := json.NewDecoder(r.Body).Decode(&in)
		if err == nil {
			var bb *dtmcli.BranchBarrier
			if bb, err = dtmcli.BarrierFromQuery(r.URL.Query()); err == nil {
				err = b.take(store, bb, in)
			}
		}
		answer(w, err)
	})
	mux.HandleFunc("/"+store+"/check", func(w http.ResponseWriter, r *http.Request) {
		bb, err := dtmcli.BarrierFromQuery(r.URL.Query())
		if err == nil {
			err = b.check(store, bb)
		}
		if explicit, known := verdict(err); known && strings.Contains(r.URL.RawQuery, "barrier=") {
			w.Header().Set(verdictHeader, explicit)
		}
		answer(w, err)
	})
	mux.HandleFunc("/"+store+"/rpc", func(w http.ResponseWriter, r *http.Request) {
		b.jsonRPC(store, w, r)
	})
}

func answer(w http.ResponseWriter, err error) {
	status, body := dtmcli.Result2HttpJSON(err)
	if err == nil {
		body = dtmcli.MapSuccess
	}
	write(w, status, body)
}

func write(w http.ResponseWriter, status int, body interface{}) {
	w.Header().Set("content-type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body)
}

func verdict(err error) (string, bool) {
	switch {
	case err == nil:
		return "committed", true
	case errors.Is(err, dtmcli.ErrFailure):
		return "rolled_back", true
	}
	return "", false
}

func (b *branches) jsonRPC(store string, w http.ResponseWriter, r *http.Request) {
	var call struct {
		ID     json.RawMessage `json:"id"`
		Method string          `json:"method"`
		Params struct {
			incoming
			Gid       string `json:"gid"`
			TransType string `json:"trans_type"`
			BranchID  string `json:"branch_id"`
			Op        string `json:"op"`
		} `json:"params"`
	}
	err := json.NewDecoder(r.Body).Decode(&call)
	if err == nil && call.Method != "in" {
		err = fmt.Errorf("%s is no method", call.Method)
	}
	if err == nil {
		var bb *dtmcli.BranchBarrier
		bb, err = dtmcli.BarrierFrom(call.Params.TransType, call.Params.Gid, call.Params.BranchID, call.Params.Op)
		if err == nil {
			err = b.take(store, bb, call.Params.incoming)
		}
	}
	reply := map[string]interface{}{"jsonrpc": "2.0", "id": call.ID, "result": "taken"}
	if err != nil {
		code := -32603
		if errors.Is(err, dtmcli.ErrFailure) {
			code = -32901
		}
		delete(reply, "result")
		reply["error"] = map[string]interface{}{"code": code, "message": err.Error()}
	}
	write(w, http.StatusOK, reply)
}

// described is `/STORE.Bank/In` and `/STORE.Bank/Check`, without generated code: messages are well-known types.
func (b *branches) described(store string) *grpc.ServiceDesc {
	type decode = func(interface{}) error
	in := func(_ interface{}, ctx context.Context, read decode, _ grpc.UnaryServerInterceptor) (interface{}, error) {
		var text wrapperspb.StringValue
		var payload incoming
		if err := read(&text); err != nil {
			return nil, err
		}
		if err := json.Unmarshal([]byte(text.Value), &payload); err != nil {
			return nil, err
		}
		bb, err := dtmgrpc.BarrierFromGrpc(ctx)
		if err == nil {
			err = b.take(store, bb, payload)
		}
		return &emptypb.Empty{}, dtmgrpc.DtmError2GrpcError(err)
	}
	check := func(_ interface{}, ctx context.Context, read decode, _ grpc.UnaryServerInterceptor) (interface{}, error) {
		if err := read(&emptypb.Empty{}); err != nil {
			return nil, err
		}
		bb, err := dtmgrpc.BarrierFromGrpc(ctx)
		if err == nil {
			err = b.check(store, bb)
		}
		said, _ := metadata.FromIncomingContext(ctx)
		if explicit, known := verdict(err); known && len(said.Get("twophase-barrier")) > 0 {
			_ = grpc.SetTrailer(ctx, metadata.Pairs(verdictHeader, explicit))
		}
		return &emptypb.Empty{}, dtmgrpc.DtmError2GrpcError(err)
	}
	return &grpc.ServiceDesc{
		ServiceName: store + ".Bank",
		HandlerType: (*interface{})(nil),
		Methods:     []grpc.MethodDesc{{MethodName: "In", Handler: in}, {MethodName: "Check", Handler: check}},
	}
}
