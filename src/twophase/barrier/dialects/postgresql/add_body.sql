alter table {table} add column body bytea
