"""The service between a store and destinations; knows no wire format.

Its rooms stand on each other, in reading order:

* `messages`: one in memory (`active`), all of them (`active`), when each is due, and how it is shown;
* `deciding`: `machine` is the only place that applies the lifecycle table, `changes` says what each action is,
  `group_commit` makes them durable (group commit), `confirmed` and `replies` tell what became of them;
* `calling`: `delivery` and `checkback`, their `calls` within the bounds of `limiter`, `stopping`, `alerts`;
* `upkeep`: `recovery` (what memory does not hold), `retention`, `horizon`;
* `nodes`: one of several on a store (`membership`, `node`), whose rows are whose (`moved`), whose clock counts.

Around them: `admission` (which requests are taken), `operator` (what a person may do), `engine`, which puts together
what concerns messages in memory, and `coordinator`, which joins it to the rest.
"""
