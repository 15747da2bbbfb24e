-- The store of one coordinator, as of the newest schema version. An older file reaches it through migrations/.

-- Live messages. Small: a message leaves it the moment it is final. The body lies beside the key (no rowid), so
-- that one look-up by gid finds everything. `owner` is the name of its producer's token; null: none was needed.
create table message (
    gid text not null primary key,
    state integer not null check (state in (2, 3)),
    node integer not null,
    epoch integer not null,
    version integer not null,
    due_ms integer not null check (typeof(due_ms) = 'integer'),
    created_ms integer not null,
    decided_ms integer not null,
    decided_by text not null,
    attempts integer not null,
    parked integer not null,
    done integer not null,
    body blob not null,
    owner text
) without rowid;

-- What the coordinator must do next, in order. State and times ride along so that counts are read from here alone.
create index message_due on message (due_ms, gid, state, created_ms, decided_ms, parked) where parked = 0;
create index message_parked on message (state, created_ms, decided_ms, parked) where parked = 1;

-- Final messages, append-only. (node, seq) grows in commit order and is never used twice.
create table history (
    node integer not null,
    seq integer not null,
    gid text not null,
    state integer not null check (state in (4, 5)),
    created_ms integer not null,
    decided_ms integer not null,
    finished_ms integer not null,
    decided_by text not null,
    reason text not null,
    attempts integer not null,
    done integer not null,
    body blob not null,
    owner text,
    primary key (node, seq)
);
create unique index history_gid on history (gid);

-- A message leaves the live rows in the statement that enters it into history: nothing ever stands in both.
create trigger history_replaces_message after insert on history
begin
    delete from message where gid = new.gid;
end;

-- What went wrong, and what operators did. Append-only.
create table attempt (
    id integer primary key,
    gid text not null,
    kind text not null,
    branch_id text not null,
    target text not null,
    at_ms integer not null,
    status integer not null,
    latency_ms integer not null,
    result text not null,
    error text not null
);
create index attempt_gid on attempt (gid);

-- Who writes: every flush first advances this row under its epoch. `owner` is a secret of one server process,
-- by which it recognises itself after a commit whose outcome was unknown.
create table node (
    id integer primary key,
    epoch integer not null,
    owner text not null,
    seq integer not null,
    commit_count integer not null,
    seen_ms integer not null
);

create table store_meta (
    name text not null primary key,
    value integer not null
) without rowid;
insert into store_meta (name, value) values ('schema_version', 4), ('history_horizon_ms', 0);

-- Topics: who is called for `topic://name`. `id` is the revision that made it, so a topic that is made anew is another;
-- `version` counts its changes.
create table topic (
    name text not null primary key,
    id integer not null,
    version integer not null,
    created_ms integer not null,
    changed_ms integer not null,
    subscribers text not null
) without rowid;

-- Grows by one with every change of any topic, in the same commit.
insert into store_meta (name, value) values ('topics_revision', 0);

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
