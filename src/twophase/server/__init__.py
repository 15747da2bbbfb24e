"""The server process: HTTP and gRPC ports in front of the coordinator.

Requests and answers are dtm's (dtm-wire §1, §2) and twophase's own. `app` puts everything together, from `settings` and
`stores`. The packages and modules:

* `codecs`: what a request contains (`wire` its fields, `decode` the message, `options` its delivery, `trace` its trace
  headers), and what is answered (`encode` from an outcome to bytes, `query` and `operator_json` from a message to
  JSON);
* `http_port`: the HTTP port. `listener` accepts, `parser` turns bytes into requests, `connection` answers prepare,
  submit and abort;
* `api`: every other route. Behind ASGI, as operations of `operation`, the rest of dtm's HTTP, JSON-RPC, operators,
  topics, many messages at once, takeovers, and `openapi`, which describes what goes over HTTP; gRPC on its own port;
* `workers`: several processes on the same ports, and their supervisor;
* `metrics` and `log_observer`, which observe the coordinator; `logs`; `alerting`.
"""
