-- A random name, made where the statement runs: one script may install several databases.
select md5(cast(clock_timestamp() as text) || cast(random() as text) || cast(random() as text))
