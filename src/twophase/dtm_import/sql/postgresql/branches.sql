-- The branches of some messages.
-- Served by: gid_branch_uniq.
select gid, branch_id, op, status, url, coalesce(bin_data, convert_to(data, 'UTF8'))
from trans_branch_op
where gid in :gids
order by gid, branch_id
