-- The body comes as base64: several drivers send bytes as a text, which a session converts whose
-- character_set_connection is not its client's. Served by uniq_barrier.
update {table}
set body = from_base64(:body_text)
where gid = :gid and branch_id = '00' and op = 'msg' and barrier_id = '01' and token = :token
