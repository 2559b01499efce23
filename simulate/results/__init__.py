"""What a replay leaves behind: tables, figures and files."""
