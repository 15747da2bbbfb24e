-- The clock of a PostgreSQL store, which its coordinators use.
select (extract(epoch from clock_timestamp()) * 1000)::bigint
