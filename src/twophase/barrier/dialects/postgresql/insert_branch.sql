-- No row comes back when this branch has a row already; the violation of any other key is an error.
-- 'unfinished' until finish_branch.sql, so that a commit inside the block never looks like a whole effect.
-- The persistence is that of the table written: a search path, or a temporary table, may have put it before the one that
-- was proven.
-- What a transaction with a barrier row needs is set on the way back, which saves a round trip: its commit is flushed
-- before it is confirmed (remote_apply, which is stronger, stays), and a client that dies in the middle is thrown out
-- (a bound set by others stays). Both count only later, at COMMIT and between statements.
insert into {table} as written (trans_type, gid, branch_id, op, barrier_id, reason, token, create_time, update_time)
values ('msg', :gid, :branch_id, :op, '01', 'unfinished', :token, now(), now())
on conflict (gid, branch_id, op, barrier_id) do nothing
returning
       (select relpersistence = 'p' from pg_class where oid = written.tableoid),
       set_config('synchronous_commit',
                  case current_setting('synchronous_commit') when 'remote_apply' then 'remote_apply' else 'on' end,
                  true),
       set_config('idle_in_transaction_session_timeout',
                  case current_setting('idle_in_transaction_session_timeout')
                       when '0' then cast(:idle_timeout as text)
                       else current_setting('idle_in_transaction_session_timeout') end,
                  true)
