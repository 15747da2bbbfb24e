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
