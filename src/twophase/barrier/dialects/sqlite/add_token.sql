alter table {table} add column token text
