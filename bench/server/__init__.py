"""HTTP, beside ADK's own server and a bare one."""
