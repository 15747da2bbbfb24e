-- One process at a time migrates a schema. $1 a number of ours.
-- Served by: nothing to look up.
select pg_advisory_xact_lock($1::integer, hashtext(current_schema()))
