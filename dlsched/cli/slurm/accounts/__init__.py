"""Accounts and their use, as `sacctmgr` and `sreport` show and change them."""
