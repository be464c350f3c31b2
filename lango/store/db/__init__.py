"""Database access: engines, connections, transactions, retries and notifications."""
