-- Which of our tables and functions stand in the current schema, and whether store_meta is one of ours. $1 tables,
-- $2 functions.
-- Served by: the catalog's own indexes.
select
    array(
        select relname::text from pg_class
        where relnamespace = current_schema()::regnamespace and relkind in ('r', 'p') and relname::text = any ($1::text[])
    ),
    exists (
        select from pg_attribute join pg_class on pg_class.oid = attrelid
        where relnamespace = current_schema()::regnamespace and relname = 'store_meta' and attname = 'value'
    ),
    array(
        select distinct proname::text from pg_proc
        where pronamespace = current_schema()::regnamespace and proname::text = any ($2::text[])
    )
