-- No row comes back when the message has a row already; the violation of any other key is an error.
-- The clock is read in RETURNING, that is after the row was written and after any wait for its key.
-- The identity is that of the table written: another search path, or a temporary table, may have put it before the one
-- that was proven. A table that a crash empties has none.
-- What a transaction with a barrier row needs is set on the way back, which saves a round trip: its commit is flushed
-- before it is confirmed (remote_apply, which is stronger, stays), and a client that dies in the middle is thrown out
-- (a bound set by others stays). Both count only later, at COMMIT and between statements.
insert into {table} (trans_type, gid, branch_id, op, barrier_id, reason, token, prepared_at, create_time, update_time)
values ('msg', :gid, '00', 'msg', '01', 'msg', :token, :prepared_at, now(), now())
on conflict (gid, branch_id, op, barrier_id) do nothing
returning cast(extract(epoch from clock_timestamp()) * 1000 as bigint),
       (select meta.value
        from {meta} as meta
        where meta.name = '{identity}'
          and (select relnamespace from pg_class where oid = meta.tableoid)
            = (select relnamespace from pg_class where oid = to_regclass('{table}') and relpersistence = 'p')),
       set_config('synchronous_commit',
                  case current_setting('synchronous_commit') when 'remote_apply' then 'remote_apply' else 'on' end,
                  true),
       set_config('idle_in_transaction_session_timeout',
                  case current_setting('idle_in_transaction_session_timeout')
                       when '0' then cast(:idle_timeout as text)
                       else current_setting('idle_in_transaction_session_timeout') end,
                  true)
