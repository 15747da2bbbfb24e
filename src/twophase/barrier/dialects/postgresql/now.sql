-- Milliseconds since 1970 by the database's clock, as it is now and not when the transaction began.
select cast(extract(epoch from clock_timestamp()) * 1000 as bigint)
