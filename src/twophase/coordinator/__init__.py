"""The service between a store and destinations; knows no wire format.

Reading order: `entry` (one message in memory), `decisions` (the only place that applies the lifecycle table),
`committer` (group commit), `delivery` and `checkback` (calls out), `gate` (their bounds), `timers`, `recovery`
(what memory does not hold), and `coordinator`, which puts them together.
"""
