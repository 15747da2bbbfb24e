create table {meta} (
  name varchar(64) not null primary key,
  value varchar(255) not null
)
