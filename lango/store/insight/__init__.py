"""The SQL of contexts, timelines, usage reports and workloads."""
