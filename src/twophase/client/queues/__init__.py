"""Consumers of queues and producers of transactional messages, over HTTP.

`twophase.queues` is the public name. `requests` asks the coordinator; `consuming` and `transactions` are the work, on
one event loop; `consumers` and `producers` are their asyncio front, `blocking` runs the same on a loop in a thread.
"""
