-- The bytes of the tables on disk, with their indexes, and with room that removed rows have left.
-- Served by: the index of pg_class by oid.
select sum(pg_total_relation_size(oid))::bigint from pg_class
where
    oid in (
        to_regclass('message'),
        to_regclass('history'),
        to_regclass('attempt'),
        to_regclass('audit_log')
    )
