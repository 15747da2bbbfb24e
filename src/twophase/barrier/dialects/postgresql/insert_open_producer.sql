-- `insert_producer` of a message that is open: the empty body says that the branches added inside the transaction are
-- not written yet. A row that is committed so is no verdict.
insert into {table} (trans_type, gid, branch_id, op, barrier_id, reason, token, body, prepared_at, create_time, update_time)
values ('msg', :gid, '00', 'msg', '01', 'msg', :token, '', :prepared_at, now(), now())
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
