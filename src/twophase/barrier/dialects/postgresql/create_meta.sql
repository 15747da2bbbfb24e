create table {meta} (
  name varchar(64) primary key,
  value varchar(255) not null
)
