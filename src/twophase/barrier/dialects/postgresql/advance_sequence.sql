-- A sequence that is behind the rows (logical replication and some dumps do not carry it) gives ids that are taken, so
-- inserts are refused. Only forwards, and only if this user may. Materialized, because privileges can be asked only of
-- what is a sequence. Primary key.
with known as materialized (
  select target.oid as sequence, (select max(id) from {table}) as highest
  from pg_attrdef as preset
  join pg_depend as dependence
    on dependence.classid = cast('pg_attrdef' as regclass) and dependence.objid = preset.oid
   and dependence.refclassid = cast('pg_class' as regclass)
  join pg_class as target on target.oid = dependence.refobjid and target.relkind = 'S'
  where preset.adrelid = to_regclass(cast(:qualified as text))
    and preset.adnum = (select attnum from pg_attribute where attrelid = preset.adrelid and attname = 'id')
  union
  select cast(cast(pg_get_serial_sequence(cast(:qualified as text), 'id') as regclass) as oid),
         (select max(id) from {table})
)
select setval(cast(sequence as regclass), highest)
from known
where case
        when has_sequence_privilege(sequence, 'update') and has_sequence_privilege(sequence, 'usage, select')
          then highest > coalesce(pg_sequence_last_value(cast(sequence as regclass)), 0)
        else false
      end
