-- Batches that are decided, and of which not every message has been submitted. Served by
-- twophase_spark_batch_publisher and uniq_barrier.
select batch.group_id
from twophase_spark_batch batch
join barrier decision on decision.gid = batch.group_id
  and decision.branch_id = '00' and decision.op = 'msg' and decision.barrier_id = '01' and decision.reason = 'msg'
where batch.publisher = :publisher and batch.published_ms is null
order by batch.begun_ms
