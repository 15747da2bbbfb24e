-- One row a run of a task: each has a random number of its own, so a repetition never mixes with what it repeats.
create table if not exists twophase_spark_writer (
  writer bigint primary key,
  group_id varchar(64) not null,
  won smallint not null default 0
)
