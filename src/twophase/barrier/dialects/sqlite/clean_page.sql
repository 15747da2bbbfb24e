-- A page of the table in the order of its rows' birth: id, whose row it is ('producer': also a check-back's), when
-- it was prepared, when it was written, and its gid. Rows that others wrote have no owner here: their coordinators'
-- rules about removal are unknown. The table's times are UTC.
-- Served by the primary key.
select cast(id as integer),
       case when trans_type <> 'msg' then ''
            when branch_id = '00' and op = 'msg' and barrier_id = '01' and prepared_at is not null then 'producer'
            when branch_id <> '00' and op = 'action' and barrier_id = '01' and token is not null then 'branch'
            else '' end,
       cast(prepared_at as integer),
       cast((julianday(create_time) - 2440587.5) * 86400000 as integer),
       cast(gid as text)
from {table}
where id > :after
order by id
limit :page_rows
