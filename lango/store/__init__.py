"""Storage in SQL: no layer but this and `testing` imports SQLAlchemy, Alembic or a driver."""
