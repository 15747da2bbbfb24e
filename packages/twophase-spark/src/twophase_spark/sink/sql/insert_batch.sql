-- Every task of a batch says it; the first one is kept. Primary key.
insert into twophase_spark_batch (group_id, publisher, query_id, batch_number, key_columns, begun_ms)
values (:group_id, :publisher, :query_id, :batch_number, :key_columns, :begun_ms)
on conflict (group_id) do nothing
