"""Writes the tables of `docs/security.md` from the reports of the attack tests."""
