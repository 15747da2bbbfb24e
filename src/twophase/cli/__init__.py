"""The `twophase` command.

`app` has the table of all commands; each is a module that is imported only when it is used. A command reads its
options, calls the part that does the work, and prints: `operating` holds the commands that talk to a running server (by
`http_api`), `plugins` finds the commands of other distributions.
"""
