-- In the default collations `Case`, `case` and `cäse` are one gid, and one would be answered for the other.
alter table {table}
  modify column gid varchar(128) character set utf8mb4 collate utf8mb4_bin not null,
  modify column branch_id varchar(128) character set utf8mb4 collate utf8mb4_bin not null,
  modify column op varchar(45) character set utf8mb4 collate utf8mb4_bin not null,
  modify column barrier_id varchar(45) character set utf8mb4 collate utf8mb4_bin not null
