"""Moving over from dtm: its unfinished messages and its topics, copied from its store into a running server.

Keeps one promise: a message is either copied whole or named with the reason why it was not, and copying it again
changes nothing. The source is only read. `found` is what a source holds, `plan` decides what becomes of it, `target`
is the server, `move` brings them together.
"""
