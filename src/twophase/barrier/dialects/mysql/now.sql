-- Milliseconds since 1970 by the database's clock; UTC, because a local time occurs twice when summer time ends.
select timestampdiff(microsecond, timestamp '1970-01-01 00:00:00', utc_timestamp(6)) div 1000
