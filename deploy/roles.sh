#!/bin/sh
# Makes the role that servers and workers use: it reads and writes rows, and changes no tables.
# PostgreSQL's image runs this once, when it makes the database. Elsewhere run it as the owner of the tables,
# with LANGO_PASSWORD, POSTGRES_USER and POSTGRES_DB set.
set -eu
psql --set=ON_ERROR_STOP=1 --set=password="$LANGO_PASSWORD" \
    --username "$POSTGRES_USER" --dbname "$POSTGRES_DB" <<'SQL'
create role lango_app login password :'password';
revoke create on schema public from public;
grant usage on schema public to lango_app;
grant select, insert, update, delete on all tables in schema public to lango_app;
grant usage, select on all sequences in schema public to lango_app;
alter default privileges in schema public
    grant select, insert, update, delete on tables to lango_app;
alter default privileges in schema public grant usage, select on sequences to lango_app;
SQL
