"""`twophase bench`: how fast a server of the dtm wire is on this machine, and how near to what the machine can do.

Promise: what is counted is what arrived at the branch, every message is accounted for (lost, duplicate, called too
early), latency counts from the moment the request was meant to be sent, and the same work against a server that
keeps nothing says what the machine could do at most.
"""
