-- Topics of queues, and groups of consumers; `text` has their settings.
create table queue_definition (
    kind text not null,
    name text not null,
    text text not null,
    primary key (kind, name)
) without rowid;

-- The next number of each queue. A flush that appends advances it.
create table queue_counter (
    topic text not null,
    queue integer not null,
    next_number integer not null,
    primary key (topic, queue)
) without rowid;

-- What is in the queues. The body stands in the row of `gid`, live or history. No branch is ever there twice.
create table queue_entry (
    topic text not null,
    queue integer not null,
    number integer not null,
    gid text not null,
    branch integer not null,
    stored_ms integer not null,
    primary key (topic, queue, number)
) without rowid;
create unique index queue_entry_gid on queue_entry (gid, branch);

-- What a group of consumers has done of a queue: all below `next_number`, and what `unfinished` says.
create table queue_progress (
    consumers text not null,
    topic text not null,
    queue integer not null,
    next_number integer not null,
    unfinished blob not null,
    changed_ms integer not null,
    primary key (topic, queue, consumers)
) without rowid;
