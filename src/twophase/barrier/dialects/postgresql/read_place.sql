-- The schema, quoted, in which an unqualified statement finds the barrier table.
select quote_ident(nspname)
from pg_class
join pg_namespace on pg_namespace.oid = pg_class.relnamespace
where pg_class.oid = to_regclass('{table}')
