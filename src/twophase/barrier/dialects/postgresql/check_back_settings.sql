-- lock_timeout counts anew for each wait, statement_timeout bounds them all.
select set_config('lock_timeout', :lock_timeout, true),
       set_config('statement_timeout', :statement_timeout, true),
       set_config('synchronous_commit',
                  case current_setting('synchronous_commit') when 'remote_apply' then 'remote_apply' else 'on' end,
                  true)
