-- Keys that two tasks of one batch hold, seen before the decision, when the batch's tasks that won are marked.
-- Served by twophase_spark_writer_group and the messages' primary key.
select count(*) from (
  select message.gid
  from twophase_spark_writer run
  join twophase_spark_message message on message.writer = run.writer
  where run.group_id = :group_id and run.won = 1
  group by message.gid
  having count(*) > 1
) twice
