alter table {table} add column token varchar(64)
