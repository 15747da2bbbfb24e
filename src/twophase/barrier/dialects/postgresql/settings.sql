-- First statement of a transaction with a barrier row: its commit is flushed before it is confirmed (remote_apply,
-- which is stronger, stays), and a client that dies in the middle is thrown out (a bound set by others stays).
select set_config('synchronous_commit',
                  case current_setting('synchronous_commit') when 'remote_apply' then 'remote_apply' else 'on' end,
                  true),
       set_config('idle_in_transaction_session_timeout',
                  case current_setting('idle_in_transaction_session_timeout')
                       when '0' then :idle_timeout else current_setting('idle_in_transaction_session_timeout') end,
                  true)
