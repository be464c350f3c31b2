"""The only room that speaks google.adk: its sessions, events and artifacts on our store."""
