-- The latest batch of a publisher, and its decision. Served by twophase_spark_batch_publisher and uniq_barrier.
select batch.publisher, batch.group_id, batch.query_id, batch.batch_number, batch.begun_ms, batch.message_count,
       batch.published_ms, batch.given_up_ms, decision.reason, batch.contrary_count
from twophase_spark_batch batch
left join barrier decision on decision.gid = batch.group_id
  and decision.branch_id = '00' and decision.op = 'msg' and decision.barrier_id = '01'
where batch.publisher = :publisher
order by batch.begun_ms desc
limit 1
