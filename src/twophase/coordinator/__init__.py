"""The service between a store and destinations; it knows no wire format.

Its packages, in reading order:

* `state`: the messages in memory (`active_message`, `active_set`) and their due times (`times`). `machine` is
  the only module that applies the lifecycle table, `actions` has the function of each action, `group_commit` makes the
  changes durable, `committed` and `refusal` are what follows a change;
* `dispatch`: `delivery` calls branches and `check_back` asks producers, by `calls` within the bounds of `limiter`;
  `force_stop`, `alerts`;
* `maintenance`: `recovery` (rows that memory does not hold), `retention`, `horizon`, `probing`;
* `cluster`: one of several nodes on a store (`membership`, `node`), the ownership of rows, the store's clock.

Around them: `admission` (which requests are accepted), `operator` (the acts of operators), `topics`, and `coordinator`,
which joins everything.
"""
