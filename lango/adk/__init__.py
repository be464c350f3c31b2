"""The only layer that imports google.adk: its sessions, events and artifacts on lango's store."""
