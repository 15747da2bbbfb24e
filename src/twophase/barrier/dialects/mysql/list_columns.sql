-- Columns of a table with their collations, empty when there is none.
select column_name, coalesce(collation_name, '')
from information_schema.columns
where table_schema = coalesce(:schema, database()) and table_name = :name
