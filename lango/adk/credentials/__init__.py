"""Credentials of users for tools: requests, answers, storage and use."""
