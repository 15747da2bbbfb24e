-- The messages of a batch, and the keys that two of its tasks hold, seen before the decision, when the batch's tasks that
-- won are marked. Rows that the ledger has lost since its tasks wrote them are missed here.
-- Served by primary keys and twophase_spark_writer_group.
select cast(coalesce(sum(held), 0) as bigint), cast(coalesce(sum(case when held > 1 then 1 else 0 end), 0) as bigint)
from (
  select count(*) as held
  from twophase_spark_batch batch
  join twophase_spark_writer run on run.group_id = batch.group_id
  join twophase_spark_message message on message.writer = run.writer
  where batch.group_id = :group_id and run.won = 1
  group by message.gid
) each_key
