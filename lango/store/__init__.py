"""Keeping sessions in SQL: the only room that speaks SQLAlchemy, asyncpg and Alembic."""
