"""Who calls: keys, tokens, limits and quotas."""
