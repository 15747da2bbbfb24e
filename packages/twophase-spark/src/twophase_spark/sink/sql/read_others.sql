-- Of some of a task's messages those that another batch has published (1), or that were given up (0). A statement of its
-- own, after the task's rows are committed: who gives up sees them, or they see that it was given up. SQLite.
-- Served by twophase_spark_message_gid and primary keys.
select theirs.gid, max(case when decision.reason = 'msg' and their_run.won = 1 then 1 else 0 end)
from twophase_spark_message theirs
join twophase_spark_writer their_run on their_run.writer = theirs.writer
join twophase_spark_batch their_batch on their_batch.group_id = their_run.group_id
left join barrier decision on decision.gid = their_run.group_id
  and decision.branch_id = '00' and decision.op = 'msg' and decision.barrier_id = '01'
where theirs.gid in (select value from json_each(:gids)) and theirs.writer <> :writer
  and (decision.reason = 'rollback' or (decision.reason = 'msg' and their_run.won = 1)
       or (decision.reason = 'msg' and their_batch.given_up_ms is not null))
group by theirs.gid
