"""The service between a store and destinations; knows no wire format.

Reading order:

* one message in memory: `entry`, `active` (all of them), `timers` and `times` (when each is due), `slots` (when one
  that found no place comes again);
* the way in: `admission` (which requests are taken), `topics` and `topic_changes`, `merging` (a message said twice);
* what happens to it: `decisions` (the only place that applies the lifecycle table), `changes` (what each action is),
  `committer` (group commit), `confirmed` (what a durable change means), `replies` and `refusal` (what requesters hear);
* calls out: `delivery`, `checkback`, `calls` and `gate` (their bounds), `evidence` (what is kept of them), `alerts`;
* people: `operator`, `stopping`, `looking` and `view` (what they see);
* the store and other nodes: `recovery` (what memory does not hold), `membership`, `node`, `moved`, `store_clock`,
  `store_faults`;
* beside it all: `retention`, `horizon`, `background`, `settings`, `observer`, `gauges`;
* and `engine`, which puts together what concerns messages in memory, and `coordinator`, which joins it to the rest.
"""
