"""The words both worlds speak: no file, no clock, no database."""
