-- A random name, made where the statement runs: one script may install several databases. A replica that repeats the
-- statement makes the same: the log carries the time and the seed.
select md5(concat(now(6), rand(), rand()))
