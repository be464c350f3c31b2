"""What the provider APIs share: SDK base class, assembly, schemas, media, errors."""
