"""ADK apps: build, load and preload them; ADK's own services and web UI."""
