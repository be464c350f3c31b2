"""MCP servers: settings, toolset, tool names and reports."""
