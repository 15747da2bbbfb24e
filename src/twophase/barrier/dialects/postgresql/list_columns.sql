-- Columns of a table as an unqualified statement would find it, empty when there is none.
select attname, ''
from pg_attribute
where attrelid = to_regclass(case when cast(:schema as text) is null then cast(:name as text)
                                  else cast(:schema as text) || '.' || cast(:name as text) end)
  and attnum > 0 and not attisdropped
