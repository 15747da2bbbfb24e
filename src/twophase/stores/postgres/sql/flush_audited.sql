-- One flush with operators' acts, see ../flush.sql and ../audit.sql. $38 to $45 the columns of acts.
-- Served by: what the functions name.
select twophase_audit(
    twophase_flush_owned(
        $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22, $23, $24, $25,
        $26, $27, $28, $29, $30, $31, $32, $33, $34, $35, $36, $37
    ),
    $1, $38, $39, $40, $41, $42, $43, $44, $45
)
