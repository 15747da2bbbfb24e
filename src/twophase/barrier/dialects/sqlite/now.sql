-- Milliseconds since 1970 by the database's clock. 2440587.5 is the Julian day of 1970-01-01.
select cast((julianday('now') - 2440587.5) * 86400000 as integer)
