-- A random name, made where the statement runs: one script may install several databases.
select lower(hex(randomblob(16)))
