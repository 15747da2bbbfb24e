-- Everything that hangs on one message, in one snapshot. Served by twophase_spark_message_gid, primary keys and
-- uniq_barrier.
select decision.reason, run.won, case when batch.given_up_ms is null then 0 else 1 end
from twophase_spark_message message
join twophase_spark_writer run on run.writer = message.writer
join twophase_spark_batch batch on batch.group_id = run.group_id
left join barrier decision on decision.gid = run.group_id
  and decision.branch_id = '00' and decision.op = 'msg' and decision.barrier_id = '01'
where message.gid = :gid
