"""The domain: messages, ids, authors, tokens, history. Standard library only; never awaits."""
