-- A statement of its own, after the insert, so its start is later than the insert's end. UTC, because a local time
-- occurs twice in the night when summer time ends. With the identity of the table that the row was written to.
-- Primary key.
select timestampdiff(microsecond, timestamp '1970-01-01 00:00:00', utc_timestamp(6)) div 1000,
       (select value from {meta} where name = '{identity}')
