-- Topics: who is called for `topic://name`. `id` is the revision that made it, so a topic that is made anew is another;
-- `version` counts its changes. Nodes of version 1 never look at it.
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
