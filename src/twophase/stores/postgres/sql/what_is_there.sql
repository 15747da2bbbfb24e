-- Which of our tables stand in the current schema, whether store_meta is one of ours, and whether the function is there.
-- $1 tables, $2 function.
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
    exists (select from pg_proc where pronamespace = current_schema()::regnamespace and proname = $2::name)
