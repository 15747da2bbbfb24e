"""The server process: ports in front of the coordinator, in dtm's words (dtm-wire §1, §2) and our own.

`app` puts everything together, from `settings` and `stores`. One way through a request, from the socket inwards:

* HTTP: `listener` accepts, `reader` makes requests of bytes, `protocol` answers the hot ones in `turns`;
* what a request says: `wire` its fields, `decode` the message, `options` its delivery, `trace` what it belongs to;
* what is answered: `encode` from an outcome to bytes, `query` and `shown` from a message to JSON;
* behind ASGI, on what `cold` gives them: `dtm_http`, `dtm_jsonrpc`, `dtm_operator`, `messages_http`, `topics_http`,
  `many_http`, `takeover`, and `openapi`, which describes all of them;
* gRPC: `grpc_port` says whether there is one, `dtm_grpc` serves it, `grpc_operators` health and reflection;
* beside them: `metrics` and `told`, `logs`, `alerting`, and `null`, a coordinator that keeps nothing.
"""
