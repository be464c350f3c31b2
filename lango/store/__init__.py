"""Storage in SQL: the only layer that uses SQLAlchemy, asyncpg and Alembic."""
