-- The store of coordinators on one database, as of the newest schema version. An older one reaches it through
-- migrations/. The tables stand in the current schema of the store's URL; the functions of flush.sql, audit.sql and adopt.sql go with them.

-- Live messages. Small: a message leaves it the moment it is final. Every change moves the row (due_ms is in an
-- index), so dead rows are many and short-lived: they are cleaned early and without pauses. `owner` is the name of the
-- producer's token; null: none was needed.
create table message (
    due_ms bigint not null,
    created_ms bigint not null,
    decided_ms bigint not null,
    done bigint not null,
    node integer not null,
    epoch integer not null,
    version integer not null,
    attempts integer not null,
    state smallint not null check (state in (2, 3)),
    parked boolean not null,
    gid text collate "C" not null,
    decided_by text not null,
    body bytea not null,
    owner text,
    constraint message_pkey primary key (gid)
) with (
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_threshold = 5000,
    autovacuum_vacuum_cost_delay = 0,
    autovacuum_analyze_scale_factor = 0.2
);

-- What a node must do next, in order. State and times ride along so that counts are read from here alone.
create index message_due on message (node, epoch, due_ms, gid) include (state, created_ms, decided_ms)
    where not parked;
create index message_parked on message (node, epoch, gid) include (state, created_ms, decided_ms) where parked;

-- What is undecided, by age: the horizon of barrier cleaning asks for the oldest.
create index message_prepared on message (created_ms, gid) where state = 2;

-- Final messages, append-only. (node, seq) grows in commit order and is never used twice.
create table history (
    seq bigint not null,
    created_ms bigint not null,
    decided_ms bigint not null,
    finished_ms bigint not null,
    done bigint not null,
    node integer not null,
    attempts integer not null,
    state smallint not null check (state in (4, 5)),
    gid text collate "C" not null,
    decided_by text not null,
    reason text not null,
    body bytea not null,
    owner text,
    constraint history_pkey primary key (node, seq)
) with (autovacuum_vacuum_scale_factor = 0.05);
create unique index history_gid on history (gid);

-- What went wrong, and what operators did. Append-only.
create table attempt (
    id bigint generated always as identity,
    at_ms bigint not null,
    status integer not null,
    latency_ms integer not null,
    gid text collate "C" not null,
    kind text not null,
    branch_id text not null,
    target text not null,
    result text not null,
    error text not null,
    constraint attempt_pkey primary key (gid, id)
);
create index attempt_at on attempt (at_ms, id);

-- Places. A server process holds one by a lease: every flush first advances the row under `fence`.
--   epoch   one tenure; rows carry (node, epoch). It ends when the lease was missed and others take the rows.
--   fence   what a flush presents; grows whenever an older one must not be written any more.
--   owner   a secret of the process that holds the place, a slash, and its lease in ms; '' when nobody does.
--   seq     the last history number used.
--   flushes, refused, seen_ms   how many flushes were committed, what the last one refused, and when it was:
--           by these a process whose connection was lost learns what became of its flush.
create table node (
    id integer not null,
    epoch integer not null,
    fence bigint not null,
    owner text not null,
    seq bigint not null,
    flushes bigint not null,
    seen_ms bigint not null,
    refused integer[] not null,
    served_at text not null default '',
    constraint node_pkey primary key (id)
) with (fillfactor = 10, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);

create table store_meta (
    name text not null,
    value bigint not null,
    constraint store_meta_pkey primary key (name)
);
insert into store_meta (name, value) values ('schema_version', 8), ('history_horizon_ms', 0);

-- Topics: who is called for `topic://name`. `id` is the revision that made it, so a topic that is made anew is another;
-- `version` counts its changes.
create table topic (
    id bigint not null,
    created_ms bigint not null,
    changed_ms bigint not null,
    version integer not null,
    name text collate "C" not null,
    subscribers text not null,
    constraint topic_pkey primary key (name)
);

-- Grows by one with every change of any topic, in the same commit.
insert into store_meta (name, value) values ('topics_revision', 0);

-- The audit log: a row for each operator's act, written in the transaction of the act. Append-only, in the order of `seq`,
-- which all nodes share. `hash` covers the row and `previous`, the hash of the row before.
create table audit_log (
    seq bigint not null,
    at_ms bigint not null,
    node integer not null,
    who text not null,
    peer text not null,
    act text not null,
    target text not null,
    reason text not null,
    state_before text not null,
    state_after text not null,
    previous text not null,
    hash text not null,
    constraint audit_log_pkey primary key (seq)
);

-- Both ends of the chain: the last row, and the last row that cleaning has removed. A transaction with an act locks it,
-- last of all that it locks, so that nodes append one after the other.
create table audit_head (
    id integer not null check (id = 1),
    seq bigint not null,
    hash text not null,
    anchor_seq bigint not null,
    anchor_hash text not null,
    constraint audit_head_pkey primary key (id)
);
insert into audit_head (id, seq, hash, anchor_seq, anchor_hash) values (1, 0, '0000000000000000000000000000000000000000000000000000000000000000', 0, '0000000000000000000000000000000000000000000000000000000000000000');

-- The tokens that a server has last read from its file, so that a change of the file is noticed: what each name may do.
create table token_seen (
    name text collate "C" not null,
    description text not null,
    constraint token_seen_pkey primary key (name)
);

-- Grows by one with every noticed change of tokens, in the same commit.
insert into store_meta (name, value) values ('tokens_revision', 0);

-- Topics of queues, and groups of consumers; `text` has their settings.
create table queue_definition (
    kind text collate "C" not null,
    name text collate "C" not null,
    text text not null,
    constraint queue_definition_pkey primary key (kind, name)
);

-- The next number of each queue. A flush that appends locks the row until its commit, so that numbers are seen in their
-- order and without gaps.
create table queue_counter (
    next_number bigint not null,
    queue integer not null,
    topic text collate "C" not null,
    constraint queue_counter_pkey primary key (topic, queue)
) with (fillfactor = 10, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);

-- What is in the queues. The body stands in the row of `gid`, live or history. No branch is ever there twice.
create table queue_entry (
    number bigint not null,
    stored_ms bigint not null,
    queue integer not null,
    branch integer not null,
    topic text collate "C" not null,
    gid text collate "C" not null,
    constraint queue_entry_pkey primary key (topic, queue, number)
) with (autovacuum_vacuum_scale_factor = 0.05);
create unique index queue_entry_gid on queue_entry (gid, branch);

-- What a group of consumers has done of a queue: all below `next_number`, and what `unfinished` says.
create table queue_progress (
    next_number bigint not null,
    changed_ms bigint not null,
    queue integer not null,
    consumers text collate "C" not null,
    topic text collate "C" not null,
    unfinished bytea not null,
    constraint queue_progress_pkey primary key (topic, queue, consumers)
) with (fillfactor = 50, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);

-- The node that serves the consumers of a topic of queues, as (node, epoch); 0 for none. `term` grows with every change of the
-- owner, and progress is written in its term alone.
create table queue_owner (
    term bigint not null,
    node integer not null,
    epoch integer not null,
    topic text collate "C" not null,
    constraint queue_owner_pkey primary key (topic)
) with (fillfactor = 50, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);
