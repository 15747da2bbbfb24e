-- Appends acts that change nothing else. $1 node, $2 the clock or null, $3 to $10 the columns of acts, see ../audit.sql.
-- Served by: what the function names.
select twophase_audit(
    array[coalesce($2::bigint, floor(extract(epoch from clock_timestamp()) * 1000)::bigint), 0],
    $1, $3, $4, $5, $6, $7, $8, $9, $10
)
