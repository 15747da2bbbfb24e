alter table {table} add column token varchar(64) character set utf8mb4 collate utf8mb4_bin
