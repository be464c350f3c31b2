-- The yardstick: the least that PostgreSQL and asyncpg can do for the same job.
-- Sections are read by name (bench/bare.py); the statements are sent exactly as written here.

-- name: tables
create table b_session (
    id bigint generated always as identity primary key,
    app text not null,
    usr text not null,
    version bigint not null default 0,
    cum_tokens bigint not null default 0,
    state jsonb not null default '{}',
    updated_at timestamptz not null default now()
);
create table b_message (
    session_id bigint not null,
    seq bigint not null,
    role text not null,
    content text not null,
    tool_calls jsonb,
    tokens integer not null,
    cum_tokens bigint not null,
    created_at timestamptz not null default now(),
    primary key (session_id, seq)
);
create index b_message_cum_tokens on b_message (session_id, cum_tokens);

-- name: append
with moved as (
    update b_session
    set version = version + 1, cum_tokens = cum_tokens + $6, updated_at = now()
    where id = $1 and version = $2
    returning id, version, cum_tokens
)
insert into b_message (session_id, seq, role, content, tool_calls, tokens, cum_tokens)
select id, version, $3, $4, $5::jsonb, $6::integer, cum_tokens from moved
returning seq;

-- name: promises
-- What lango's promises need beside the tables above: a fencing epoch, events that are stored once.
alter table b_session add epoch bigint not null default 0;
alter table b_message add event_id text not null, add invocation_id text not null,
    add author text not null, add unique (session_id, event_id);

-- name: promised append
-- The database numbers the events. Returns nothing for a lost epoch or an event that is there.
with moved as (
    update b_session
    set version = version + 1, cum_tokens = cum_tokens + $8, state = state || $9::jsonb,
        updated_at = now()
    where id = $1 and epoch = $2
        and not exists (select from b_message where session_id = $1 and event_id = $3)
    returning id, version, cum_tokens
)
insert into b_message (session_id, seq, event_id, invocation_id, role, author, content, tool_calls,
    tokens, cum_tokens)
select id, version, $3, $4, $5, $5, $6, $7::jsonb, $8::integer, cum_tokens from moved
returning seq;

-- name: load
select seq, role, content, tool_calls, tokens, created_at
from b_message
where session_id = $1
order by seq desc
limit 80;

-- name: create
insert into b_session (app, usr) select 'bench', 'user' from generate_series(1, $1) returning id;

-- name: fill
-- Message by message across the sessions, the order in which many conversations really grow.
insert into b_message (session_id, seq, role, content, tokens, cum_tokens)
select s, n, case when n % 2 = 1 then 'user' else 'assistant' end, $4::text, $5::integer,
       n * $5::bigint
from generate_series($2::bigint, $3::bigint) n, unnest($1::bigint[]) s
order by n, s;

-- name: advance
update b_session set version = $2::bigint, cum_tokens = $2::bigint * $3::integer
where id = any($1::bigint[]);
