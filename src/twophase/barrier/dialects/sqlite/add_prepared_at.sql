alter table {table} add column prepared_at integer
