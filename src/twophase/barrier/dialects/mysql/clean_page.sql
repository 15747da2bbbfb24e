-- A page of the table in the order of its rows' birth: id, whose row it is ('producer': also a check-back's), when
-- it was prepared, when it was written, and its gid. Rows that others wrote have no owner here: their coordinators'
-- rules about removal are unknown. The table's times are local to their writer; here they are taken for UTC, and the
-- cleaning allows for it.
-- Served by the primary key.
select id,
       case when trans_type <> 'msg' then ''
            when branch_id = '00' and op = 'msg' and barrier_id = '01' and prepared_at is not null then 'producer'
            when branch_id <> '00' and op = 'action' and barrier_id = '01' and token is not null then 'branch'
            else '' end,
       prepared_at,
       timestampdiff(microsecond, timestamp '1970-01-01 00:00:00', create_time) div 1000,
       gid
from {table}
where id > :after
order by id
limit :page_rows
