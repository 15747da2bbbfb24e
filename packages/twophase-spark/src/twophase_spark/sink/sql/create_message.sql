-- One row a message and run of a task, written before the message is prepared.
create table if not exists twophase_spark_message (
  writer bigint not null,
  gid varchar(64) not null,
  primary key (writer, gid)
)
