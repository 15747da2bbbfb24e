-- The audit log: a row for each operator's act, written in the transaction of the act. Append-only, in the order of `seq`.
-- `hash` covers the row and `previous`, the hash of the row before.
create table audit_log (
    seq integer primary key,
    at_ms integer not null,
    node integer not null,
    who text not null,
    peer text not null,
    act text not null,
    target text not null,
    reason text not null,
    state_before text not null,
    state_after text not null,
    previous text not null,
    hash text not null
);

-- Both ends of the chain: the last row, and the last row that cleaning has removed.
create table audit_head (
    id integer primary key check (id = 1),
    seq integer not null,
    hash text not null,
    anchor_seq integer not null,
    anchor_hash text not null
);
insert into audit_head (id, seq, hash, anchor_seq, anchor_hash) values (1, 0, '0000000000000000000000000000000000000000000000000000000000000000', 0, '0000000000000000000000000000000000000000000000000000000000000000');

-- The tokens that a server has last read from its file, so that a change of the file is noticed: what each name may do.
create table token_seen (
    name text not null primary key,
    description text not null
) without rowid;

-- Grows by one with every noticed change of tokens, in the same commit.
insert into store_meta (name, value) values ('tokens_revision', 0);
