-- One installer at a time in this database; CREATE TABLE IF NOT EXISTS fails when two run it at once.
select pg_advisory_xact_lock(7020188240195215952)
