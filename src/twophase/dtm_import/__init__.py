"""The import from dtm: unfinished messages and topics go to a running server.

Keeps one promise: a message is either copied whole or named with the reason why it was not, and copying it again
changes nothing. The source is only read. `found` is a source's content, `plan` decides its fate, `target` is
the server, `move` brings them together, and `command` is `twophase import`.
"""
