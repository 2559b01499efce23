"""Users are told of their jobs: by the site's command, by a webhook, by mail."""
