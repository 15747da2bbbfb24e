-- One row a batch, for people and for `abandon`; what is decided stands in the barrier under group_id.
create table if not exists twophase_spark_batch (
  group_id varchar(64) primary key,
  publisher varchar(128) not null,
  query_id varchar(64) not null,
  batch_number bigint not null,
  key_columns text not null,
  begun_ms bigint not null,
  message_count bigint not null default 0,
  published_ms bigint,
  contrary_count bigint not null default 0,
  given_up_ms bigint
)
