"""Writes the tables of `docs/security.md` from what the attack tests reported."""
