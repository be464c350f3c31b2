"""One settings file, `lango.yaml`: what it may say, where values come from, what is wrong."""
