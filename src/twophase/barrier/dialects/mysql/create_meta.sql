create table if not exists {meta} (
  name varchar(64) not null primary key,
  value varchar(255) not null
) engine = InnoDB default character set utf8mb4 collate utf8mb4_bin
